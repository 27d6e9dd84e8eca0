"""The memory's services without their topics, on a memory small enough to check by hand."""

import numpy as np
import pytest

from engram.core.errors import UnknownNameError
from engram.memory.graph_memory import GraphMemory
from engram.memory.store import GraphStore
from engram.nodes import messages
from engram.nodes.memory_answers import Asking, answer_query, merge, query_from
from engram_interfaces.srv import MemoryMerge, MemoryQuery
from tests.memory.scenes import WordEncoder, seen, view

SECOND = 10**9
ASKING = Asking(now_ns=100 * SECOND, limit=5)
CUP, BOX = (0.5, 0.1, 0.02), (0.6, -0.2, 0.02)


@pytest.fixture
def memory():
    """A red cup and, 32 cm away, a blue box, seen from 1 s to 5 s; the cup is 25 cm farther from 50 s on."""
    memory = GraphMemory(encoder=WordEncoder())
    for second in range(1, 6):
        memory.update(view([seen("red cup", CUP), seen("blue box", BOX)], second * SECOND))
    for second in range(50, 53):
        memory.update(view([seen("red cup", (0.5, 0.35, 0.02)), seen("blue box", BOX)], second * SECOND))
    return memory


def ask(memory, **fields):
    query = query_from(MemoryQuery.Request(**fields), ASKING)
    return answer_query(memory, query, MemoryQuery.Response())


def test_a_question_in_words_is_answered_with_evidence_and_age(memory):
    answer = ask(memory, text="where is the red cup?")
    assert answer.answer == "The red cup is at x 0.50, y 0.35, z 0.02 m, on the table; I see it; belief 0.97."
    assert answer.age == pytest.approx(100 - 52)
    assert list(answer.evidence_ids) == [f"front@{50 * SECOND}", f"front@{52 * SECOND}"]
    assert answer.evidence[0].startswith("history: red cup at its place from 50.0 s")
    assert answer.confidence == pytest.approx(0.968, abs=1e-3)
    assert not answer.advice


def test_the_past_is_asked_in_words_or_by_the_field(memory):
    by_words = ask(memory, text="where was the red cup at 4 s")
    by_field = ask(memory, text="red cup", at=messages.to_stamp(4 * SECOND))
    assert by_words.nodes[0].pose.position.y == by_field.nodes[0].pose.position.y == pytest.approx(0.1, abs=1e-3)


def test_what_was_believed_differs_from_what_was_true(memory):
    """At 20 s the cup had not been seen elsewhere: nobody knows when it left, but then it was thought to be there."""
    then = messages.to_stamp(20 * SECOND)
    assert ask(memory, text="red cup", at=then).confidence == pytest.approx((1 - 15 / 45) * 5 / 5.2)
    believed = ask(memory, text="red cup", believed_at=then)
    assert believed.answer.startswith("I thought the red cup was at x 0.50, y 0.10")
    assert believed.confidence > 0.95


def test_near_takes_a_label_or_an_id(memory):
    assert [n.label for n in ask(memory, near="blue box").nodes] == []
    assert [n.label for n in ask(memory, near="blue box", at=messages.to_stamp(3 * SECOND)).nodes] == ["red cup"]
    with pytest.raises(UnknownNameError, match="unknown node or label 'blue bx'; did you mean 'blue box'"):
        ask(memory, near="blue bx")


def test_what_is_unknown_comes_with_advice_on_where_to_look(memory):
    answer = ask(memory, text="where is the green spoon")
    assert answer.answer == "I know of nothing like 'green spoon'."
    assert answer.advice.startswith("Look at the table") and answer.look and answer.age == -1.0


def test_merge_and_undo_by_the_service(memory, tmp_path):
    folder = tmp_path / "robot1" / "memory"
    other = GraphMemory(GraphStore(folder), encoder=WordEncoder())
    other.update(view([seen("green bowl", (0.4, 0.0, 0.02))], 9 * SECOND))
    other.commit()
    request = MemoryMerge.Request(store_path=str(folder))
    request.transform.translation.x, request.transform.rotation.w = 0.1, 1.0
    assert merge(memory, request, MemoryMerge.Response()).status == "merged"
    bowl = ask(memory, text="green bowl").nodes[0]
    assert bowl.id == "robot1/object_0001"
    assert bowl.pose.position.x == pytest.approx(0.5)
    assert "merged already" in merge(memory, request, MemoryMerge.Response()).status
    request.undo = True
    assert merge(memory, request, MemoryMerge.Response()).status == "undone"
    assert not ask(memory, text="green bowl").nodes
    assert "no memory of 'robot1'" in merge(memory, request, MemoryMerge.Response()).status


def test_without_a_rotation_landmarks_must_do(memory, tmp_path):
    other = GraphMemory(GraphStore(tmp_path / "robot2"), encoder=WordEncoder())
    other.update(view([seen("green bowl", (0.4, 0.0, 0.02))], 9 * SECOND))
    other.commit()
    request = MemoryMerge.Request(store_path=str(tmp_path / "robot2"))
    request.transform.rotation.w = 0.0
    assert "give a transform" in merge(memory, request, MemoryMerge.Response()).status


def test_advice_weighs_the_way(memory):
    far = MemoryQuery.Request(text="where is the green spoon", use_robot_place=True)
    far.robot_place.x = 1000.0
    answer = answer_query(memory, query_from(far, ASKING), MemoryQuery.Response())
    assert not answer.look and answer.advice.startswith("Looking is not worth it")
    assert np.allclose(messages.xyz(answer.look_at), 0)
