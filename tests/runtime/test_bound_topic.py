"""Messages of one writer are passed on, those that wait come later, and refusals are counted and named."""

import weakref
from types import SimpleNamespace

import pytest

from engram.core.claims import REMEMBERED_S, Writer, WriterClaim
from engram.core.errors import InvalidInputError
from engram.runtime import bound_topic
from engram.runtime.bound_topic import PATIENCE_S, BoundTopic
from engram.runtime.health import Health

ONE, TWO = b"1" * 16, b"2" * 16
AGAIN = b"2" * 12 + b"3" * 4
"""Another publisher of the process that TWO is of."""


class Desk:
    """A bound topic, whose writers the test adds and takes away, and a clock."""

    def __init__(self, *nodes: str, kept: int = 1, robot_id: str = "r1", **more):
        self.there: dict[bytes, str] = {}
        self.now, self.heard, self.health = 100.0, [], Health()
        claim = WriterClaim(lambda: [Writer(*item) for item in self.there.items()], nodes, lambda: self.now)
        told = claim, robot_id, self.heard.append, self.health, lambda: self.now
        self.topic = BoundTopic("command", *told, kept=kept, checks=[self.check], **more)

    def check(self, msg):
        if getattr(msg, "wrong", False):
            raise InvalidInputError("stamp 60 s ahead")

    def wait(self, seconds: float):
        self.now += seconds
        self.topic.retry()

    def said(self) -> str:
        return self.health.condition("active").message


def test_the_second_writer_is_refused_counted_and_named():
    desk = Desk()
    desk.there = {ONE: "/safety_node", TWO: "/intruder"}
    desk.topic.take("a", ONE)
    desk.topic.take("b", TWO)
    desk.topic.take("c", TWO)
    assert desk.heard == ["a"]
    assert desk.said() == "writer of command: from /intruder, but /safety_node writes it"
    assert desk.health.counts["refused from other writers: command"] == 2


def test_the_newest_message_of_a_writer_without_a_name_waits_for_it():
    desk = Desk("/safety_node")
    desk.there = {ONE: ""}
    desk.topic.take("a", ONE)
    desk.topic.take("b", ONE)
    desk.wait(PATIENCE_S - 0.1)
    assert desk.heard == [] and desk.said() == "active"
    desk.there = {ONE: "/safety_node"}
    desk.wait(0.05)
    assert desk.heard == ["b"]
    desk.wait(1.0)
    assert desk.heard == ["b"]


def test_what_a_stranger_says_meanwhile_pushes_out_nothing_that_waits():
    desk = Desk("/safety_node")
    desk.there = {ONE: "/safety_node"}
    desk.topic.take("free", ONE)
    desk.there[TWO] = "/safety_node"  # the killed one's successor
    desk.topic.take("stopped", TWO)
    for number in range(20):
        stranger = bytes([number]) * 16
        desk.there[stranger] = "/safety_node" if number == 0 else ""
        desk.topic.take(f"stranger {number}", stranger)
        del desk.there[stranger]
    del desk.there[ONE]
    desk.wait(REMEMBERED_S)
    assert desk.heard == ["free", "stopped"]


def test_a_writer_that_stays_without_a_name_is_refused():
    desk = Desk("/safety_node")
    desk.there = {ONE: ""}
    desk.topic.take("a", ONE)
    desk.wait(PATIENCE_S)
    assert desk.said() == "writer of command: its node is not known yet"
    assert desk.health.counts["refused from other writers: command"] == 1
    desk.there = {ONE: "/safety_node"}
    desk.wait(1.0)
    assert desk.heard == []


def test_what_was_refused_is_forgotten_when_its_writer_is_gone():
    """The page tries to take over while somebody else drives, and both are gone soon after."""
    desk = Desk("/teleoperation", "/viewer_node")
    desk.there = {ONE: "/teleoperation", TWO: "/viewer_node"}
    desk.topic.take("driven", ONE)
    desk.topic.take("tried", TWO)
    desk.there = {}
    desk.wait(REMEMBERED_S)
    desk.wait(PATIENCE_S)
    desk.there = {AGAIN: "/viewer_node"}
    desk.topic.take("again", AGAIN)
    assert desk.heard == ["driven", "again"]


def test_a_successor_that_has_waited_for_long_may_be_without_a_name_for_a_moment():
    desk = Desk("/safety_node")
    desk.there = {ONE: "/safety_node"}
    desk.topic.take("a", ONE)
    desk.there[TWO] = "/safety_node"
    desk.topic.take("b", TWO)
    desk.wait(PATIENCE_S + 1.0)
    desk.there = {TWO: ""}
    desk.wait(REMEMBERED_S)
    desk.there = {TWO: "/safety_node"}
    desk.wait(0.1)
    assert desk.heard == ["a", "b"]


def test_a_message_whose_writer_turns_out_to_be_another_is_counted_too():
    desk = Desk("/safety_node")
    desk.there = {ONE: ""}
    desk.topic.take("a", ONE)
    assert desk.health.counts["refused from other writers: command"] == 0
    desk.there = {ONE: "/intruder"}
    desk.wait(0.1)
    assert desk.said() == "writer of command: from /intruder, expected /safety_node"
    assert desk.health.counts["refused from other writers: command"] == 1


def test_what_a_successor_latched_is_taken_when_its_predecessor_is_gone():
    desk = Desk("/safety_node")
    desk.there = {ONE: "/safety_node"}
    desk.topic.take("a", ONE)
    desk.there = {ONE: "/safety_node", TWO: "/safety_node"}
    desk.topic.take("b", TWO)
    desk.wait(REMEMBERED_S)
    assert desk.heard == ["a"]
    assert desk.health.counts["refused from other writers: command"] == 1  # looking again is no second message
    del desk.there[ONE]
    desk.wait(REMEMBERED_S)
    assert desk.heard == ["a", "b"]


def test_a_newer_message_that_counts_replaces_the_one_that_waits():
    desk = Desk("/safety_node")
    desk.there = {ONE: ""}
    desk.topic.take("old", ONE)
    desk.there = {ONE: "/safety_node"}
    desk.topic.take("new", ONE)
    desk.wait(1.0)
    assert desk.heard == ["new"]


def test_where_every_message_counts_those_of_a_successor_wait_in_order():
    desk = Desk("/safety_node", kept=3)
    desk.there = {ONE: "/safety_node"}
    desk.topic.take(0, ONE)
    desk.there = {ONE: "/safety_node", TWO: "/safety_node"}
    for message in (1, 2, 3, 4):
        desk.topic.take(message, TWO)
    desk.wait(REMEMBERED_S)
    assert desk.heard == [0]
    del desk.there[ONE]
    desk.wait(REMEMBERED_S)
    desk.topic.take(5, TWO)
    assert desk.heard == [0, 2, 3, 4, 5]


def test_what_waits_comes_before_the_message_that_shows_the_writer_s_name():
    desk = Desk("/safety_node", kept=3)
    desk.there = {ONE: ""}
    desk.topic.take(1, ONE)
    desk.topic.take(2, ONE)
    desk.there = {ONE: "/safety_node"}
    desk.topic.take(3, ONE)
    assert desk.heard == [1, 2, 3]


def test_who_does_not_know_which_robot_it_hears_takes_messages_for_any():
    desk = Desk(robot_id="")
    desk.topic.take(message := SimpleNamespace(robot_id="r7"), ONE)
    assert desk.heard == [message]


def test_a_message_for_another_robot_is_refused():
    desk = Desk()
    other, ours, anybodys = (SimpleNamespace(robot_id=name) for name in ("r7", "r1", ""))
    for msg in (other, ours, anybodys):
        desk.topic.take(msg, ONE)
    assert desk.heard == [ours, anybodys]
    assert desk.said() == "robot of command: for robot 'r7', this one is 'r1'"
    assert desk.health.counts["refused for another robot: command"] == 1


def test_what_is_wrong_with_a_message_of_a_stranger_is_no_problem_of_the_topic():
    desk = Desk("/memory_node")
    desk.there = {ONE: "/memory_node", TWO: "/stranger"}
    desk.topic.take("a", ONE)
    desk.topic.take(SimpleNamespace(wrong=True), TWO)
    assert desk.said() == "writer of command: from /stranger, but /memory_node writes it"
    with pytest.raises(InvalidInputError, match="stamp 60 s ahead"):
        desk.topic.take(SimpleNamespace(wrong=True), ONE)
    desk.topic.take("b", ONE)
    assert desk.heard == ["a", "b"]


def test_what_is_wrong_with_a_message_that_waits_is_told_when_it_counts_and_nothing_else_of_it_is_kept():
    desk = Desk("/memory_node")
    desk.there = {ONE: ""}

    class Large:
        wrong = True

    message = Large()
    gone = weakref.ref(message)
    desk.topic.take(message, ONE)
    del message
    assert gone() is None
    desk.there = {ONE: "/memory_node"}
    with pytest.raises(InvalidInputError, match="stamp 60 s ahead"):
        desk.wait(0.1)
    desk.wait(0.1)
    assert desk.heard == []


def test_what_is_latched_waits_for_its_writer_s_name_for_as_long_as_the_writer_is_there():
    desk = Desk("/safety_node", latched=True)
    desk.there = {ONE: "", TWO: ""}
    desk.topic.take("stopped", ONE)
    desk.topic.take("gone", TWO)
    desk.wait(PATIENCE_S)
    assert "its node is not known yet" in desk.said() and desk.heard == []
    del desk.there[TWO]
    desk.wait(100 * PATIENCE_S)
    desk.there |= {ONE: "/safety_node", TWO: "/safety_node"}
    del desk.there[TWO]
    desk.wait(0.1)
    assert desk.heard == ["stopped"] and desk.topic._waiting == {}
    assert desk.health.counts["refused from other writers: command"] == 2


def test_what_waits_is_bounded_in_bytes_and_of_who_takes_most_the_oldest_goes(monkeypatch):
    monkeypatch.setattr(bound_topic, "WAITING_MAX", 100)
    desk = Desk("/learner_node", kept=512, size_of=len)
    desk.there = {ONE: "", TWO: ""}
    desk.topic.take("0123456789", ONE)
    for number in range(20):
        desk.topic.take(str(number) * 20, TWO)
    assert sum(one.size for line in desk.topic._waiting.values() for one in line) <= 100
    desk.there = {ONE: "/learner_node", TWO: "/stranger"}
    desk.wait(0.1)
    assert desk.heard == ["0123456789"]


def test_a_wrong_message_of_a_stranger_takes_no_room_from_what_waits(monkeypatch):
    monkeypatch.setattr(bound_topic, "WAITING_MAX", 100)
    desk = Desk("/learner_node", kept=512, size_of=lambda msg: msg.size)
    desk.there = {ONE: "", TWO: ""}
    told = [SimpleNamespace(size=40), SimpleNamespace(size=30)]
    for one in told:
        desk.topic.take(one, ONE)
    desk.topic.take(SimpleNamespace(size=60, wrong=True), TWO)
    desk.there = {ONE: "/learner_node", TWO: "/stranger"}
    desk.wait(0.1)
    assert desk.heard == told
