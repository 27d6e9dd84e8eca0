"""Of a topic that several robots share each robot's messages count from one process, and refusals are named."""

from types import SimpleNamespace

import pytest

from engram.core.claims import REMEMBERED_S, Writer
from engram.core.errors import InvalidInputError
from engram.runtime.health import Health
from engram.runtime.robot_topic import LONGEST_ID, ROBOTS, RobotTopic

ONE, TWO, THREE = b"1" * 16, b"2" * 16, b"3" * 16
AGAIN = b"2" * 12 + b"9" * 4
"""Another publisher of the process that TWO is of."""


class Desk:
    """A topic whose writers the test adds and takes away, and a clock."""

    def __init__(self, *nodes: str):
        self.there: dict[bytes, str] = {}
        self.now, self.asked, self.heard, self.health = 100.0, 0, [], Health()
        self.topic = RobotTopic("experience", self.writers, nodes, self.heard.append, self.health, lambda: self.now)

    def writers(self):
        self.asked += 1
        return [Writer(*item) for item in self.there.items()]

    def take(self, robot: str, gid: bytes) -> bool:
        """Let ``gid`` write for ``robot``; tell whether that counts."""
        before = len(self.heard)
        self.topic.take(SimpleNamespace(robot_id=robot), gid)
        return len(self.heard) > before

    def said(self) -> str:
        return self.health.condition("active").message


def test_each_robot_has_one_writer_and_a_second_one_is_refused_counted_and_named():
    desk = Desk()
    desk.there = {ONE: "/r1/policy_node", TWO: "/r2/policy_node", THREE: "/recording"}
    assert desk.take("r1", ONE) and desk.take("r2", TWO) and desk.take("r2", AGAIN)
    assert not desk.take("r1", THREE) and not desk.take("r1", TWO)
    assert desk.said() == "writer of experience: for robot 'r1' from /r2/policy_node, but /r1/policy_node writes it"
    assert desk.health.counts["refused from other writers: experience"] == 2
    del desk.there[ONE]
    desk.now += 2 * REMEMBERED_S
    assert desk.take("r1", THREE)


def test_where_a_node_is_named_it_counts_in_every_namespace_and_a_stranger_in_none():
    desk = Desk("/*/policy_node", "/mine")
    desk.there = {ONE: "/policy_node", TWO: "/a/r2/policy_node", THREE: "/stranger"}
    assert desk.take("r1", ONE) and desk.take("r2", TWO)
    assert not desk.take("ghost", THREE)
    assert desk.said().endswith("for robot 'ghost' from /stranger, expected /*/policy_node or /mine")
    desk.there[THREE] = "/mine"
    desk.now += 2 * REMEMBERED_S
    assert desk.take("ghost", THREE)


def test_a_writer_whose_node_is_not_known_yet_is_no_problem_and_counts_later():
    desk = Desk("/*/policy_node")
    desk.there = {ONE: ""}
    assert not desk.take("r1", ONE) and desk.said() == "active"
    desk.there = {ONE: "/policy_node"}
    desk.now += 2 * REMEMBERED_S
    assert desk.take("r1", ONE)


def test_who_makes_up_robots_stays_with_a_few_and_the_graph_is_not_asked_for_each():
    desk = Desk()
    desk.there = {ONE: "/stranger", TWO: "/policy_node"}
    assert sum(desk.take(f"robot {number}", ONE) for number in range(10_000)) == ROBOTS
    assert desk.take("r1", TWO)
    assert desk.asked == 1


def test_of_two_processes_that_bear_one_name_neither_writes_until_one_is_left():
    desk = Desk("/*/policy_node")
    desk.there = {ONE: "/r1/policy_node", TWO: "/r1/policy_node", THREE: "/r3/policy_node"}
    assert not desk.take("r1", ONE) and not desk.take("r1", TWO)
    assert desk.said().endswith("'r1' 2 processes call themselves /r1/policy_node; it counts when one is left")
    assert desk.take("r3", THREE)
    del desk.there[ONE]
    desk.now += 2 * REMEMBERED_S
    assert desk.take("r1", TWO)


def test_of_processes_that_came_and_went_nothing_is_kept():
    desk = Desk()
    for number in range(100):
        desk.there = {bytes([number]) * 16: "/policy_node"}
        desk.now += 2 * REMEMBERED_S
        assert desk.take(f"robot {number}", bytes([number]) * 16)
    assert len(desk.topic._claims) == 1


def test_what_is_wrong_with_a_message_is_told_of_the_robot_s_own_writer_alone():
    desk, checked = Desk("/policy_node"), []

    def check(msg):
        checked.append(msg.robot_id)
        raise InvalidInputError("too large")

    topic = RobotTopic("experience", desk.writers, ("/policy_node",), desk.heard.append, desk.health, checks=[check])
    desk.there = {ONE: "/policy_node", TWO: "/stranger"}
    for gid, robot in ((TWO, "x" * 10**6), (THREE, "r1")):
        topic.take(SimpleNamespace(robot_id=robot), gid)
    assert checked == [] and desk.said().startswith("writer of experience: for robot 'xxx")
    with pytest.raises(InvalidInputError, match="too large"):
        topic.take(SimpleNamespace(robot_id="x" * 10**6), ONE)
    assert desk.heard == [] and max(map(len, topic._claims)) == LONGEST_ID
