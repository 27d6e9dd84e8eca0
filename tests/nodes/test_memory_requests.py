"""The memory's services without their topics, on a memory small enough to check by hand."""

import datetime as dt
import time
from contextlib import closing

import numpy as np
import pytest

from engram.core.errors import InvalidInputError, UnknownNameError
from engram.memory.graph.places import known_place, table
from engram.memory.graph_memory import GraphMemory
from engram.memory.robot_memory import RobotMemory
from engram.memory.storage.store import GraphStore
from engram.nodes import messages
from engram.nodes.messages import requests
from engram.runtime import memory_requests
from engram.runtime.graph_mirror import GraphMirror
from engram.runtime.memory_requests import Asking, question_of, undecided
from engram.runtime.parameters.memory import MemoryNodeConfig
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


def question_from(request):
    return question_of(requests.asked_from_msg(request), ASKING)


def answer(memory, request):
    return requests.answer_to_msg(memory.query(question_from(request)))


def ask(memory, **fields):
    return answer(memory, MemoryQuery.Request(**fields))


def merge(memory, request):
    guess = requests.guess_from_msg(request.transform)
    return memory_requests.merge(memory, request.store_path, guess, undo=request.undo)[0]


def test_a_service_reads_times_of_day_in_the_zone_of_the_machine_unless_an_offset_is_set(monkeypatch):
    """In Berlin, 10:00 is 8:00 UTC in summer and 9:00 in winter."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        for config, hours in ((MemoryNodeConfig(), (8, 9)), (MemoryNodeConfig(utc_offset_h=0.0), (10, 10))):
            asking = Asking(1_795_000_000 * SECOND, 5, config.offset_h)
            for date, hour in zip(("2026-07-05", "2026-11-10"), hours, strict=True):
                asked = requests.asked_from_msg(MemoryQuery.Request(text=f"where was the cup {date} 10:00"))
                utc = dt.datetime.fromisoformat(f"{date}T{hour:02}:00Z").timestamp()
                assert question_of(asked, asking).valid_ns[0] == round(utc) * SECOND
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("hours", [14.5, -15.0, float("inf")])
def test_an_offset_that_no_place_has_ends_the_node_at_its_start(hours):
    with pytest.raises(InvalidInputError, match=rf"utc_offset_h: {hours}, expected -14\.\.14 hours, or nan for the"):
        MemoryNodeConfig(utc_offset_h=hours)


@pytest.mark.parametrize("field", ["at", "believed_at"])
def test_a_time_to_come_is_refused_and_a_clock_a_little_ahead_is_not(field):
    now = ASKING.now_ns
    question_from(MemoryQuery.Request(text="cup", **{field: messages.to_stamp(now + 500_000_000)}))
    with pytest.raises(InvalidInputError, match=rf"^{field}: 2.0 s from now is still to come"):
        question_from(MemoryQuery.Request(text="cup", **{field: messages.to_stamp(now + 2_000_000_000)}))


@pytest.mark.parametrize("field", ["text", "near"])
def test_longer_words_than_people_say_are_refused_by_the_field(field):
    with pytest.raises(InvalidInputError, match=rf"^{field}: 65000 characters, expected at most 1000"):
        question_from(MemoryQuery.Request(**{field: "in a " * 13000}))


def test_a_question_in_words_is_answered_with_evidence_and_age(memory):
    answer = ask(memory, text="where is the red cup?")
    assert answer.answer == "The red cup is at x 0.50, y 0.35, z 0.02 m, on the table; last seen 48 seconds ago."
    assert answer.age == pytest.approx(100 - 52)
    assert list(answer.evidence_ids) == [f"front@{50 * SECOND}", f"front@{52 * SECOND}"]
    assert answer.evidence[0].startswith("history: red cup at its place from 50.0 s")
    assert answer.confidence == pytest.approx(0.968, abs=1e-3)
    assert not answer.advice


@pytest.mark.parametrize("near", ["", "blue box"])
def test_a_time_that_is_not_understood_is_no_question_about_now(memory, near):
    with pytest.raises(InvalidInputError, match=r"'before': not understood as a time"):
        ask(memory, text="where was the red cup before the party", near=near)


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


def test_near_keeps_the_time_of_a_task():
    """During the task the cup stood 32 cm from the box; since then it stands farther away."""
    with closing(RobotMemory(encoder=WordEncoder())) as memory:
        memory.begin_episode("tidy", "tidy the table", 0)
        for second in range(1, 6):
            memory.update(view([seen("red cup", CUP), seen("blue box", BOX)], second * SECOND))
        memory.end_episode("tidy", "succeeded", 6 * SECOND)
        for second in range(50, 53):
            memory.update(view([seen("red cup", (0.5, 0.35, 0.02)), seen("blue box", BOX)], second * SECOND))
        during = ask(memory, text="where was the red cup during the last task", near="blue box")
        assert [node.label for node in during.nodes] == ["red cup"] and "was" in during.answer
        assert not ask(memory, text="where is the red cup", near="blue box").nodes


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
    assert merge(memory, request) == "merged"
    bowl = ask(memory, text="green bowl").nodes[0]
    assert bowl.id == "robot1/object_0001"
    assert bowl.pose.position.x == pytest.approx(0.5)
    assert "merged already" in merge(memory, request)
    request.undo = True
    assert merge(memory, request) == "undone"
    assert not ask(memory, text="green bowl").nodes
    assert "no memory of 'robot1'" in merge(memory, request)


def test_without_a_rotation_landmarks_must_do(memory, tmp_path):
    other = GraphMemory(GraphStore(tmp_path / "robot2"), encoder=WordEncoder())
    other.update(view([seen("green bowl", (0.4, 0.0, 0.02))], 9 * SECOND))
    other.commit()
    request = MemoryMerge.Request(store_path=str(tmp_path / "robot2"))
    request.transform.rotation.w = 0.0
    assert "give a transform" in merge(memory, request)


def test_advice_weighs_the_way(memory):
    far = MemoryQuery.Request(text="where is the green spoon", use_robot_place=True)
    far.robot_place.x = 1000.0
    found = answer(memory, far)
    assert not found.look and found.advice.startswith("Looking is not worth it")
    assert np.allclose(messages.xyz(found.look_at), 0)


def test_the_whole_search_comes_with_the_advice():
    """Two places of one size that nobody has looked at; the sideboard is where the robot stands."""
    sideboard = known_place("place", "sideboard", (0.5, 4.0, -0.02), (1.2, 1.6, 0.04))
    memory = GraphMemory(encoder=WordEncoder(), places=[table(), sideboard])
    request = MemoryQuery.Request(text="where is the green spoon", use_robot_place=True)
    request.robot_place.x, request.robot_place.y = 0.5, 4.0
    found = answer(memory, request)
    assert found.look and found.route_labels == ["the sideboard", "the table"]
    assert [place.y for place in found.route] == [4.0, 0.0] and found.route[0] == found.look_at
    assert list(found.route_chances) == pytest.approx(memory.query(question_from(request)).advice.chances)
    assert found.route_chances[0] == found.route_chances[1] > 0.4
    about_a_place = ask(memory, near="table")
    assert not (about_a_place.route or about_a_place.route_chances or about_a_place.route_labels)


@pytest.fixture(params=[GraphMemory, RobotMemory])
def robots(request, tmp_path):
    """A memory, and a mirror of its graph, that has taken robot1's red cup, 55 cm from ours, for another one."""
    other = GraphMemory(GraphStore(tmp_path / "robot1"), encoder=WordEncoder())
    for second in range(60, 64):
        other.update(view([seen("red cup", (0.5, -0.2, 0.02))], second * SECOND))
    other.commit()
    ours = request.param(encoder=WordEncoder())
    for second in range(1, 5):
        ours.update(view([seen("red cup", (0.5, 0.35, 0.02)), seen("blue box", BOX)], second * SECOND))
    asked = MemoryMerge.Request(store_path=str(tmp_path / "robot1"))
    asked.transform.rotation.w = 1.0
    assert merge(ours, asked) == "merged"
    mirror = GraphMirror()
    mirror.apply("boot", ours.graph())
    yield ours, mirror
    if isinstance(ours, RobotMemory):
        ours.close()


CUPS = ("object_0001", "robot1/object_0001")


def listed(memory):
    return [(one.kind, one.ours, one.theirs) for one in map(requests.conflict_to_msg, undecided(memory))]


def resolve(memory, action="", a="", b="", merge=0):
    return memory_requests.resolve(memory, action, a, b, merge)


def test_a_conflict_is_listed_joined_undone_and_kept_apart_by_the_services(robots):
    """The mirror follows the changes alone, without ever asking for the whole graph."""
    memory, mirror = robots

    def decide(**fields):
        done = resolve(memory, **fields)
        assert mirror.apply("boot", done.change) and mirror.sequence == done.change.sequence
        whole = memory.graph()
        assert set(mirror.nodes) == {node.id for node in whole.nodes}
        assert set(mirror.edges.values()) == set(whole.edges)
        return done

    assert listed(memory) == [("moved", *CUPS)]
    joined = decide(action="join", a=CUPS[0], b=CUPS[1])
    assert joined.reason == f"joined: {CUPS[1]} is part of {CUPS[0]}; undo of merge {joined.merge} takes that back"
    assert CUPS[1] not in mirror.nodes and listed(memory) == []
    assert mirror.nodes[CUPS[0]].pose.position[1] == pytest.approx(-0.2)  # seen there last
    assert [node.id for node in ask(memory, text="red cup").nodes] == [CUPS[0]]
    assert decide(action="undo", merge=joined.merge).reason == f"undone: merge {joined.merge}"
    assert set(CUPS) <= set(mirror.nodes) and listed(memory) == [("moved", *CUPS)]
    assert {node.id for node in ask(memory, text="red cup").nodes} == set(CUPS)
    assert decide(action="keep_apart", a=CUPS[1], b=CUPS[0]).reason == f"kept apart: {CUPS[1]} and {CUPS[0]}"
    assert set(CUPS) <= set(mirror.nodes) and listed(memory) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"action": "joyn"}, "unknown action 'joyn'; did you mean 'join'. valid: join, keep_apart, undo"),
        ({"a": CUPS[0], "b": CUPS[1]}, "unknown action ''; valid: join, keep_apart, undo"),
        ({"action": "join", "a": CUPS[0], "b": "robot1/object_1"}, "did you mean 'robot1/object_0001'"),
        ({"action": "join", "a": CUPS[0], "b": CUPS[0]}, "'object_0001' is given twice, expected two objects"),
        ({"action": "keep_apart", "a": CUPS[0], "b": "place_0001"}, "layer 'place', valid: object"),
        ({"action": "keep_apart", "a": CUPS[0], "b": "object_0002"}, "of either of them: object_0001 and robot1/"),
        ({"action": "undo", "merge": 7}, "merge 7: not one that can be undone; valid: .none."),
    ],
)
def test_what_cannot_be_decided_is_named_and_changes_nothing(robots, fields, words):
    memory, mirror = robots
    with pytest.raises((UnknownNameError, InvalidInputError), match=words):
        resolve(memory, **fields)
    assert memory.graph().sequence == mirror.sequence and listed(memory) == [("moved", *CUPS)]
