"""Four stores as one memory: the contract, what each adds to an answer, and a restart."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from engram.core.contracts import MemoryQuery
from engram.memory.robot_memory import RobotMemory
from engram.memory.store import GraphStore, read_snapshot
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
    memory.end_episode("carry", True, 8 * SECOND, ("object_0001",), "v1")
    return memory


def test_an_answer_carries_the_evidence_of_every_store_that_knows_something(folder):
    memory = lived(folder)
    memory.consolidate(1.0)
    answer = memory.query(MemoryQuery(text="red cup"))
    assert answer.nodes[0].label == "red cup"
    assert {"history", "short_term", "episodic"} <= {one.source for one in answer.evidence}
    scores = [one.score for one in answer.evidence]
    assert scores == sorted(scores, reverse=True)
    assert any("front@" in name for one in answer.evidence for name in one.ids)


def test_all_four_survive_a_restart(folder):
    memory = lived(folder)
    memory.commit()
    before = memory.query(MemoryQuery(text="red cup"))
    memory.close()
    memory.scene.store.close()
    again = RobotMemory(GraphStore(folder), encoder=WordEncoder())
    after = again.query(MemoryQuery(text="red cup"))
    assert {(e.source, e.text) for e in after.evidence} == {(e.source, e.text) for e in before.evidence}
    assert [e.outcome for e in again.episodic.episodes] == ["succeeded"]


def test_the_stores_have_threads_of_their_own(folder):
    memory = lived(folder)
    names = {thread.name.rpartition("_")[0] for thread in threading.enumerate()}
    assert {"short_term", "episodic", "semantic"} <= names
    memory.close()


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
    np.testing.assert_array_equal(stored.tables["nodes"]["time"][:, 3], [1, 1])  # the table and the cup
