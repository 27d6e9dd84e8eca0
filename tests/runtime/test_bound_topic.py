"""Messages of one writer are passed on, those that wait come later, and refusals are counted and named."""

from types import SimpleNamespace

from engram.core.claims import REMEMBERED_S, Writer, WriterClaim
from engram.runtime.bound_topic import PATIENCE_S, BoundTopic
from engram.runtime.health import Health

ONE, TWO = b"1" * 16, b"2" * 16
AGAIN = b"2" * 12 + b"3" * 4
"""Another publisher of the process that TWO is of."""


class Desk:
    """A bound topic, whose writers the test adds and takes away, and a clock."""

    def __init__(self, *nodes: str, kept: int = 1, robot_id: str = "r1"):
        self.there: dict[bytes, str] = {}
        self.now, self.heard, self.health = 100.0, [], Health()
        claim = WriterClaim(lambda: [Writer(*item) for item in self.there.items()], nodes, lambda: self.now)
        self.topic = BoundTopic("command", claim, robot_id, self.heard.append, self.health, lambda: self.now, kept=kept)

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
