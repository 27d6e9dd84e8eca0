import numpy as np

from engram.benchmarks.memory_baselines import CaptionMemory, SightingMemory
from engram.core.questions import FindObject
from tests.memory.scenes import WordEncoder, seen, view

HERE, THERE = (0.5, 0.0, 0.02), (0.9, 0.0, 0.02)


def _place(memory, text="red cube"):
    nodes = memory.query(FindObject(text)).nodes
    return tuple(nodes[0].pose.position) if nodes else None


def _feed(memory):
    memory.update(view([seen("red cube", HERE)], stamp_ns=1))
    memory.update(view([seen("blue cup", HERE)], stamp_ns=2))
    memory.update(view([seen("red cube", THERE)], stamp_ns=3))
    return memory


def test_every_baseline_answers_with_the_newest_sighting_of_the_best_label():
    for memory in (
        SightingMemory(None, WordEncoder()),
        SightingMemory(100, WordEncoder()),
        CaptionMemory(20, WordEncoder()),
    ):
        assert _place(memory) is None
        assert _place(_feed(memory)) == THERE
        assert _place(memory, "blue cup") == HERE
        both = memory.query(FindObject("red cube", limit=5)).nodes
        assert [tuple(node.pose.position) for node in both] == [THERE, HERE]


def test_newest_100_forgets_what_a_full_history_keeps():
    short, full = SightingMemory(100, WordEncoder()), SightingMemory(None, WordEncoder())
    for memory in (short, full):
        memory.update(view([seen("red cube", HERE)], stamp_ns=0))
        for i in range(100):
            memory.update(view([seen("blue cup", THERE)], stamp_ns=1 + i))
    assert [n.label for n in short.query(FindObject("red cube")).nodes] == ["blue cup"]
    assert _place(full) == HERE


def test_captions_beyond_the_best_k_are_not_read():
    memory = CaptionMemory(2, WordEncoder())
    for i in range(3):
        memory.update(view([seen("red cube", HERE)], stamp_ns=i))
    memory.update(view([seen("red cube", THERE), seen("blue cup", HERE)], stamp_ns=9))  # its caption is less alike
    assert _place(memory) == HERE


def test_none_of_them_knows_that_a_thing_is_gone():
    memory = _feed(SightingMemory(None, WordEncoder()))
    memory.update(view([], stamp_ns=9))
    assert _place(memory) == THERE
    assert memory.commit() == 0 and len(memory.graph().nodes) == 3
    assert not np.isnan(memory.context("red cube", 9).place).any()
