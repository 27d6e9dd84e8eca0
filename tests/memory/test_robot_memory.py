"""Four stores as one memory: the contract, what each adds to an answer, and a restart."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from engram.core.questions import FindObject
from engram.core.types import Record
from engram.memory.robot_memory import RobotMemory, RobotMemoryConfig
from engram.memory.storage.snapshots import read_snapshot
from engram.memory.storage.store import GraphStore
from tests.contracts.memory import MemoryContract
from tests.memory.scenes import WordEncoder, seen, view

HERE, THERE = (0.5, 0.1, 0.02), (0.65, -0.15, 0.02)
SECOND = 10**9


class TestFourStores(MemoryContract):
    def make(self):
        return RobotMemory(encoder=WordEncoder())


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "memory"


def lived(folder):
    """A memory that saw a cup, took it to another place within a task, and saw it there."""
    memory = RobotMemory(GraphStore(folder), encoder=WordEncoder())
    memory.begin_episode("carry", "put the red cup away", 0)
    for second in range(4):
        memory.update(view([seen("red cup", HERE)], second * SECOND))
    for second in range(4, 8):
        memory.update(view([seen("red cup", THERE)], second * SECOND))
    memory.end_episode("carry", "succeeded", 8 * SECOND, ("object_0001",), "v1")
    return memory


def test_an_answer_carries_the_evidence_of_every_store_that_knows_something(folder):
    memory = lived(folder)
    memory.consolidate(1.0)
    answer = memory.query(FindObject("red cup"))
    assert answer.nodes[0].label == "red cup"
    assert {"history", "short_term", "episodic"} <= {one.source for one in answer.evidence}
    scores = [one.score for one in answer.evidence]
    assert scores == sorted(scores, reverse=True)
    assert any("front@" in name for one in answer.evidence for name in one.ids)


def test_all_four_survive_a_restart(folder):
    memory = lived(folder)
    memory.commit()
    before = memory.query(FindObject("red cup"))
    memory.close()
    memory.scene.store.close()
    again = RobotMemory(GraphStore(folder), encoder=WordEncoder())
    after = again.query(FindObject("red cup"))
    assert {(e.source, e.text) for e in after.evidence} == {(e.source, e.text) for e in before.evidence}
    assert [e.outcome for e in again.episodic.episodes] == ["succeeded"]


def test_after_a_restart_an_answer_points_at_pictures_that_were_taken(folder):
    """The last camera that saw a thing is of its node; the fact was written when the first one did."""
    memory = RobotMemory.open(folder, encoder=WordEncoder())
    shown = set()
    for step in range(8):
        scene = view([seen("red cup", HERE)], (step + 1) * SECOND, camera="front" if step < 4 else "wrist")
        memory.update(scene)
        shown.add(scene.id)
        if step == 3:
            memory.commit()
    memory.commit()
    memory.close()
    with RobotMemory.open(folder, encoder=WordEncoder(), read_only=True) as again:
        found = {name for one in again.query(FindObject("red cup")).evidence for name in one.ids if "@" in name}
    assert found and found <= shown


def test_the_stores_have_threads_of_their_own(folder):
    memory = lived(folder)
    names = {thread.name.rpartition("_")[0] for thread in threading.enumerate()}
    assert {"short_term", "episodic", "semantic"} <= names
    memory.close()


def watched(store, seconds=0.0):
    """Let recalls of ``store`` wait so long; return (thread, begin, end) of each."""
    recall, seen_ = store.recall, []

    def slow(query):
        begin = time.perf_counter()
        time.sleep(seconds)
        found = recall(query)
        seen_.append((threading.current_thread().name.rpartition("_")[0], begin, time.perf_counter()))
        return found

    store.recall = slow
    return seen_


def settled(folder):
    memory = lived(folder)
    memory.commit()
    return memory


def test_quick_stores_with_nothing_to_do_are_asked_by_the_caller(folder):
    memory = settled(folder)
    asked = [watched(store) for store in (memory.short_term, memory.episodic, memory.semantic)]
    memory.query(FindObject("red cup"))
    assert {thread for calls in asked for thread, _, _ in calls} == {threading.current_thread().name.rpartition("_")[0]}


def test_slow_stores_are_asked_side_by_side(folder):
    memory = settled(folder)
    asked = [watched(store, 0.2) for store in (memory.short_term, memory.episodic, memory.semantic)]
    one = memory.query(FindObject("red cup"))  # the first time, nobody knows yet
    again = memory.query(FindObject("red cup"))
    assert [calls[1][0] for calls in asked] == ["short_term", "episodic", "semantic"]
    assert max(calls[1][1] for calls in asked) < min(calls[1][2] for calls in asked)  # all began before one ended
    assert [e.text for e in again.evidence] == [e.text for e in one.evidence]


def test_a_store_that_still_takes_in_a_change_does_not_hold_up_the_others(folder):
    memory = settled(folder)
    update, done = memory.episodic.update, []

    def slow(change, stamp_ns):
        time.sleep(0.3)
        update(change, stamp_ns)
        done.append(time.perf_counter())

    memory.episodic.update = slow
    other, late = watched(memory.semantic), watched(memory.episodic)
    begin = time.perf_counter()
    memory.update(view([seen("red cup", HERE)], 20 * SECOND))
    assert time.perf_counter() - begin < 0.3  # the frame does not wait
    answer = memory.query(FindObject("red cup"))
    assert other[0][2] < done[0] < late[0][1]  # who was busy answers with what was told before the question
    assert late[0][0] == "episodic" and "episodic" in {one.source for one in answer.evidence}


def test_a_store_that_fails_is_heard_at_the_next_commit(folder):
    memory = RobotMemory(GraphStore(folder), encoder=WordEncoder())

    def fail(change, stamp_ns):
        raise ValueError("full")

    memory.episodic.update = fail
    memory.update(view([seen("red cup", HERE)], 1))
    with pytest.raises(ValueError, match="full"):
        memory.commit()


def test_one_commit_is_one_snapshot_of_all_stores(folder):
    memory = lived(folder)
    memory.commit()
    stored = read_snapshot(folder)
    texts = "".join(str(text) for text in stored.tables["records"]["text"][:, 0])
    assert '"short_term"' in texts and '"episodic"' in texts
    assert stored.sequence == memory.graph().sequence
    np.testing.assert_array_equal(stored.tables["nodes"]["time"][:, 3], [1, 1, 0])  # table, cup, and nobody


def test_the_context_holds_objects_alone_and_the_end_of_a_task_counts_for_its_skill(folder):
    memory = lived(folder)
    memory.begin_episode("carry", "put the red cup away", 10 * SECOND)
    tokens = memory.context("put the red cup away", 18 * SECOND)
    assert tokens.source_ids[0] == "object_0001" and tokens.mask.sum() == 1
    memory.end_episode("carry", "failed", 19 * SECOND, ("object_0001",), "v1")
    memory.commit()
    assert memory.episodic.episodes[-1].memory_ids == ("object_0001",)
    (carry,) = memory.semantic.skills()
    assert (carry.policy_version, carry.successes, carry.n) == ("v1", 1, 2)


def test_a_stopped_task_counts_for_no_skill(folder):
    memory = lived(folder)
    memory.begin_episode("carry", "put the red cup away", 10 * SECOND)
    memory.end_episode("carry", "stopped", 11 * SECOND, ("object_0001",), "v1")
    memory.commit()
    assert memory.semantic.skills()[0].n == 1
    stopped = memory.episodic.episodes[-1]
    assert (stopped.outcome, stopped.return_, stopped.worth) == ("stopped", None, 0.5)


def test_a_store_with_rows_of_before_opens_and_drops_them_with_the_next_commit(folder):
    """Earlier versions kept what a memory was worth to tasks."""
    memory = lived(folder)
    memory.scene.records.put("episodic", Record("value/object_0001", {"n": 2.0, "mean": 0.5}))
    memory.commit()
    memory.close()
    memory.scene.store.close()
    assert "value/object_0001" in "".join(read_snapshot(folder).tables["records"]["text"][:, 0])
    with RobotMemory.open(folder, encoder=WordEncoder()) as again:
        assert [one.worth for one in again.episodic.episodes] == [0.75]
    assert "value/" not in "".join(read_snapshot(folder).tables["records"]["text"][:, 0])


@pytest.mark.parametrize("kept", [True, False])
def test_the_ram_of_every_store_stays_within_its_share(folder, kept):
    """148 KB for the scene graph, 12 for short-term, 64 for episodic and 32 for semantic memory."""
    memory = RobotMemory(GraphStore(folder) if kept else None, RobotMemoryConfig().within(1 / 4), WordEncoder())
    for step in range(120):
        at = (0.3 + 0.1 * (step % 5), 0.1 * (step // 5 % 3), 0.02)
        memory.begin_episode(f"task {step}", "put the red cup away", 40 * step * SECOND)
        memory.update(view([seen("red cup", HERE), seen("blue bowl", at)], (40 * step + 1) * SECOND))
        memory.end_episode(f"task {step}", "succeeded", (40 * step + 2) * SECOND, ("object_0001",), "v1")
        if step % 10 == 9:
            memory.consolidate(1.0)
            memory.commit()
            shares = {"graph": 148, "short_term": 12, "episodic": 64, "semantic": 32}
            used = memory.bytes_used()
            assert all(used[name] <= 1024 * share for name, share in shares.items()), used
    assert memory.query(FindObject("red cup")).nodes[0].label == "red cup"
    assert len(memory.episodic.episodes) == 6  # a quarter of 64 KB, 2,670 bytes a case
