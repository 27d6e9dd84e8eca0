"""Answers in words, from a memory small enough to check by hand."""

import numpy as np
import pytest

from engram.core.contracts import Memory, MemoryAnswer, MemoryQuery
from engram.core.errors import UnknownNameError
from engram.core.types import Evidence, GraphUpdate, Pose, SceneNode
from engram.nodes.memory_answers import answer_query
from engram_interfaces.srv import MemoryQuery as MemoryQuerySrv


def node(label, x, state="visible"):
    pose = Pose(np.array([x, 0.0, 0.02]), np.array([1.0, 0, 0, 0]))
    color, embedding = np.zeros(3), np.zeros(384, np.float32)
    return SceneNode(
        f"object_{label}", "object", label, pose, np.eye(3), np.ones(3), color, embedding, 0.5, state, 0, 1, 1
    )


class TwoThings(Memory):
    """Knows a cup at x = 0 and a box at x = 1; finds by label and place."""

    nodes = (node("cup", 0.0), node("box", 1.0, "absent"))

    def update(self, scene):
        raise NotImplementedError

    def query(self, query):
        def fits(one):
            near = query.place is None or np.linalg.norm(one.pose.position - query.place) <= query.radius_m
            return near and query.text in ("", one.label)

        found = tuple(one for one in self.nodes if fits(one))
        evidence = tuple(Evidence("graph", "seen", 0.8, 1, ("front@1", "front@0")) for _ in found)
        text = f"There are {len(found)}." if found else f"I know of nothing like {query.text!r}."
        return MemoryAnswer(found, (0.8,) * len(found), text, 0.4, 2.0, evidence)

    def context(self, instruction, stamp_ns):
        raise NotImplementedError

    def graph(self, at_ns=None):
        return GraphUpdate(0, 1, True, self.nodes)

    def commit(self):
        return 1


def ask(near="", **query):
    return answer_query(TwoThings(), MemoryQuery(**query), near, MemoryQuerySrv.Response())


def test_words_confidence_and_evidence_are_those_of_the_memory():
    answer = ask(text="cup")
    assert answer.answer == "There are 1."
    assert answer.confidence == pytest.approx(0.4)
    assert list(answer.evidence_ids) == ["front@1", "front@0"]
    assert [n.label for n in answer.nodes] == ["cup"]
    assert ask(text="spoon").answer == "I know of nothing like 'spoon'."


def test_near_takes_a_label_or_an_id():
    assert [n.label for n in ask(near="box").nodes] == ["box"]
    assert [n.label for n in ask(near="object_cup", radius_m=2.0).nodes] == ["cup", "box"]
    with pytest.raises(UnknownNameError, match="unknown node or label 'bx'; did you mean 'box'"):
        ask(near="bx")
