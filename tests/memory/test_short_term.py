"""The short-term memory holds the recent changes of objects, bounded, and answers with them."""

from __future__ import annotations

import numpy as np
import pytest

from engram.core.questions import Selection
from engram.memory.stores.short_term.store import ShortTermConfig, ShortTermMemory
from tests.contracts.memory_store import MemoryStoreContract
from tests.memory.updates import SECOND, embed, event, node, step


class TestShortTermMemory(MemoryStoreContract):
    def make(self):
        return ShortTermMemory()


class TestShortTermMemoryByFrequency(MemoryStoreContract):
    def make(self):
        return ShortTermMemory(ShortTermConfig(eviction="w_tiny_lfu"))


def test_it_tells_the_last_change_with_place_time_and_evidence():
    store = ShortTermMemory()
    table = node("place_0001", "table")
    store.update(step(event("new", "object_0001", "red cup", 1), seen_too=[table]), 1 * SECOND)
    store.update(step(event("moved", "object_0001", "red cup", 9, (0.3, 0.1, 0.02)), on="place_0001"), 9 * SECOND)
    (found,) = store.recall(Selection(text="red cup", vector=embed("red cup")))
    assert found.text == "the red cup moved to the table"
    assert (found.stamp_ns, found.node_id, found.ids) == (9 * SECOND, "object_0001", ("front@9000000000",))
    assert found.score == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_array_equal(found.place, (0.3, 0.1, 0.02))


@pytest.mark.parametrize("eviction", ["newest", "fifo", "lru", "lfu", "w_tiny_lfu", "learned"])
def test_it_never_holds_more_than_its_capacity_and_says_what_left_the_disk(eviction):
    store = ShortTermMemory(ShortTermConfig(capacity=5, eviction=eviction))
    on_disk: set[str] = set()
    for i in range(60):
        store.update(step(event("new", f"object_{i}", f"thing {i}", i)), i * SECOND)
        assert len(store) <= 5
        if i % 7 == 0:
            state = store.state()
            on_disk = (on_disk | {row.key for row in state.changed}) - set(state.removed)
    state = store.state()
    on_disk = (on_disk | {row.key for row in state.changed}) - set(state.removed)
    assert on_disk == {one.node_id for one in store.recall(Selection(limit=100))} | {"eviction policy"}


def test_what_is_asked_for_stays_when_questions_count():
    store = ShortTermMemory(ShortTermConfig(capacity=3, eviction="lru"))
    for i in range(3):
        store.update(step(event("new", f"object_{i}", f"thing {i}", i)), i * SECOND)
    store.asked("object_0", "thing 0")
    store.update(step(event("new", "object_3", "thing 3", 3)), 3 * SECOND)
    assert "object_0" in store and "object_1" not in store


def test_what_the_graph_gave_up_is_forgotten():
    store = ShortTermMemory()
    for i in range(3):
        store.update(step(event("new", f"object_{i}", f"thing {i}", i)), i * SECOND)
    store.update(step(event("deleted", "object_0", "thing 0", 5), deleted=["object_0"]), 5 * SECOND)
    store.update(step(event("merged", "object_1", "thing 1", 6, other_id="object_2"), deleted=["object_2"]), 6 * SECOND)
    assert [one.node_id for one in store.recall(Selection())] == ["object_1"]


def test_time_place_and_relation_narrow_the_answer():
    store = ShortTermMemory()
    table = node("place_0001", "table")
    store.update(step(event("new", "object_1", "cup", 10, (0.2, 0, 0)), on="place_0001", seen_too=[table]), 10 * SECOND)
    store.update(step(event("new", "object_2", "cup", 20, (0.8, 0, 0))), 20 * SECOND)

    def ids(**asked):
        return [one.node_id for one in store.recall(Selection(**asked))]

    assert ids(valid_ns=(15 * SECOND, 25 * SECOND)) == ["object_2"]
    assert ids(believed_ns=15 * SECOND) == ["object_1"]
    assert ids(place=np.array([0.2, 0, 0]), radius_m=0.1) == ["object_1"]
    assert ids(relation="on", target="table") == ["object_1"]
    assert ids(relation="on") == ["object_1"]
    assert ids(relation="in", target="table") == []


def test_a_restart_forgets_no_question():
    """LFU: object_0 was asked for twice, so the next new one displaces another, also after a restart."""
    store = ShortTermMemory(ShortTermConfig(capacity=3, eviction="lfu"))
    for i in (0, 1, 2):
        store.update(step(event("new", f"object_{i}", f"thing {i}", i)), i * SECOND)
    for key in ("object_0", "object_0", "object_2"):
        store.asked(key, "thing")
    again = ShortTermMemory(ShortTermConfig(capacity=3, eviction="lfu"))
    again.restore(store.state().changed)
    again.update(step(event("new", "object_3", "thing 3", 3)), 3 * SECOND)
    again.update(step(event("new", "object_4", "thing 4", 4)), 4 * SECOND)
    assert [f"object_{i}" in again for i in range(5)] == [True, False, True, False, True]


def test_its_budget_holds():
    """An entry of 384 floats takes 1,536 bytes and 1,000 for the rest: 10 of them fit into 0.025 MB."""
    store = ShortTermMemory(ShortTermConfig(eviction="fifo", budget_mb=0.025))
    for i in range(20):
        store.update(step(event("new", f"object_{i}", f"thing {i}", i)), i * SECOND)
    removed = store.state().removed
    assert removed == tuple(sorted(f"object_{i}" for i in range(10)))
    assert len(store) == 10 and store.bytes_used() <= 0.025 * (1 << 20)
