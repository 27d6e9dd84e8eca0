"""``engram teleop`` in a terminal of its own, towards a safety node: who drives, what is said, and how it ends."""

import os
import pty
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool

from engram.core.types import ActionChunk as CoreChunk
from engram.core.types import GraphUpdate, HumanAction, Pose
from engram.nodes import messages, qos
from engram_interfaces.msg import ActionChunk, Intervention, SceneGraphUpdate, TaskStatus
from tests.core.gantry import joints
from tests.runtime.demonstrations import dataset
from tests.runtime.lerobotleader import UNPLUG
from tests.viewer.scenes import scene_node

pytestmark = [pytest.mark.ros, pytest.mark.timeout(300)]


class Person:
    """At a terminal that runs ``engram teleop``; what is printed goes into ``folder``."""

    def __init__(self, graph, folder, *words: str, who: str = "ann"):
        self._hand, terminal = pty.openpty()
        self._printed = folder / who
        command = [sys.executable, "-m", "engram.app.cli", "teleop", "--who", who, "--timeout-s", "60"]
        command += ["--domain", str(graph.domain), *words]
        self.unplug = folder / f"{who}.unplug"
        environment = {**os.environ, UNPLUG: str(self.unplug)}
        with self._printed.open("wb") as out:
            self.process = subprocess.Popen(
                command, stdin=terminal, stdout=out, stderr=subprocess.STDOUT, env=environment
            )
        os.close(terminal)

    def printed(self) -> str:
        return self._printed.read_text()

    def type(self, keys: str) -> None:
        os.write(self._hand, keys.encode())

    def close(self) -> str:
        """Return what was printed, once it has ended."""
        self.process.wait(60)
        self.end()
        return self.printed()

    def end(self) -> None:
        """Leave, whatever the test found: a person who stays drives the robot of the next test."""
        self.process.kill()
        self.process.wait(60)
        if self._hand is not None:
            os.close(self._hand)
        self._hand = None


@pytest.fixture
def person(graph, tmp_path):
    """Returns a person at a terminal, given the words after ``engram teleop``."""
    people: list[Person] = []

    def come(*words: str, who: str = "ann") -> Person:
        people.append(Person(graph, tmp_path, *words, who=who))
        return people[-1]

    yield come
    for one in people:
        one.end()


@pytest.fixture
def robot(graph):
    """A safety node in free running, with joints that come every control step; bound as the launch files do it."""
    writers = ["intervention=teleoperation,viewer_node"]
    own = {"robot": "tests.core.gantry:GANTRY", "diagnostics_period_s": 0.1, "lockstep": False, "writers": writers}
    graph.start("safety_node", **own)
    out = graph.node.create_publisher(JointState, "joint_states", qos.SENSOR)
    graph.active("safety_node")
    graph.matched(out)

    def tell(position: float = 0.0) -> None:
        out.publish(messages.joints_to_msg(joints(position, stamp_ns=time.time_ns())))

    timer = graph.node.create_timer(0.1, tell)
    yield graph
    graph.node.destroy_timer(timer)


def told(executed) -> str:
    return executed[-1].policy_version if executed else ""


def test_a_person_drives_by_keys_stops_the_robot_and_hands_back(robot, person):
    executed = robot.listen(ActionChunk, "safety/executed", qos.SENSOR)
    said = robot.listen(Intervention, "intervention", qos.EVENTS)
    stopped = robot.listen(Bool, "safety/stopped", qos.LATCHED)
    ann = person()
    robot.wait(lambda: "hand back, and leave" in ann.printed(), 60, "ann is at the terminal")
    robot.spin(2.0)
    assert not said  # nobody has touched a key
    ann.type("w")
    robot.wait(lambda: told(executed) == "human:ann", 60, "ann drives")
    assert max(abs(message.actions[0]) for message in executed) == pytest.approx(0.3)
    robot.spin(1.0)  # longer than a silent person drives
    assert told(executed) == "human:ann"
    ann.type(" ")
    robot.wait(lambda: said and not said[-1].active, 60, "ann hands back")
    ann.type("s")
    robot.wait(lambda: said[-1].active and said[-1].action[0] < 0, 60, "ann drives again")
    ann.type("\x1b")
    robot.wait(lambda: stopped and stopped[-1].data, 60, "the stop")
    robot.wait(lambda: not said[-1].active, 60, "ann has handed back")
    assert said[-2].active and not any(said[-2].action[:6])  # she stood still, and had the robot until it was stopped
    ann.type("d")
    robot.wait(lambda: told(executed) == "hold:stopped", 60, "a stop goes before a person")
    robot.spin(1.0)
    ann.type("q")
    printed = ann.close()
    assert ann.process.returncode == 0
    assert "safety/stop: stopped; call safety/reset" in printed
    assert "the robot is stopped: 'engram release' lets it move again" in printed
    robot.wait(lambda: not said[-1].active, 10, "ann has handed back")


def test_a_recording_neither_opens_the_hand_of_who_takes_over_nor_takes_the_robot_from_them(graph, person):
    """It plays beside the robot: other joint states, of long ago, and the gripper open."""
    graph.start("safety_node", robot="tests.core.gantry:GANTRY", lockstep=False, writers=["joint_states=test"])
    played = graph.outsider("recording")
    recorded = played.create_publisher(JointState, "joint_states", qos.SENSOR)
    opened = played.create_publisher(ActionChunk, "safety/executed", qos.SENSOR)
    out = graph.node.create_publisher(JointState, "joint_states", qos.SENSOR)
    executed = graph.listen(ActionChunk, "safety/executed", qos.SENSOR)
    said = graph.listen(Intervention, "intervention", qos.EVENTS)
    graph.active("safety_node")
    began_ns = time.time_ns()

    def play() -> None:
        recorded.publish(messages.joints_to_msg(joints(1.0, stamp_ns=began_ns - 10**12)))
        row = CoreChunk(time.time_ns(), 1, "ee_delta", np.array([[0.0] * 6 + [-1.0]]), 0.1, 1, "recorded")
        opened.publish(messages.chunk_to_msg(row))

    def tell() -> None:
        out.publish(messages.joints_to_msg(joints(stamp_ns=time.time_ns())))

    timers = [graph.node.create_timer(0.02, play), graph.node.create_timer(0.1, tell)]
    ann = person()
    graph.wait(lambda: "hand back, and leave" in ann.printed(), 60, "ann is at the terminal")
    # "expected /test" where the robot's own joints have not been heard yet, "but /test writes it" where they have
    refused = "writer of joint_states: from /recording, "
    graph.wait(lambda: refused in ann.printed(), 60, "she is told of the recording")
    for keys in ("g", "w"):  # closed, then taken over again
        ann.type(keys)
        graph.wait(lambda: said and said[-1].active, 60, "ann drives")
        graph.wait(lambda: any(one.policy_version == "human:ann" for one in executed), 60, "she is listened to")
        graph.spin(1.0)
        ann.type(" ")
        graph.wait(lambda: not said[-1].active, 60, "ann has handed back")
    ann.type("q")
    ann.close()
    for timer in timers:
        graph.node.destroy_timer(timer)
    assert min(messages.from_stamp(one.header.stamp) for one in said) >= began_ns
    assert {one.action[-1] for one in said if one.active} == {1.0}


def test_one_person_drives_at_a_time_and_another_after_they_hand_back(robot, person):
    executed = robot.listen(ActionChunk, "safety/executed", qos.SENSOR)
    ann, bob = person(), person(who="bob")
    for one in (ann, bob):
        robot.wait(lambda one=one: "hand back, and leave" in one.printed(), 60, "the person is at the terminal")
    ann.type("w")
    robot.wait(lambda: told(executed) == "human:ann", 60, "ann drives")
    bob.type("w")
    robot.problem("safety_node", "intervention")
    assert told(executed) == "human:ann"
    bob.type(" ")
    ann.type(" ")
    robot.spin(2.0)
    bob.type("w")
    robot.wait(lambda: told(executed) == "human:bob", 60, "bob drives")
    for one in (ann, bob):
        one.type("q")
        one.close()


def test_a_stranger_does_not_take_over_and_is_counted_and_named(robot, person):
    executed = robot.listen(ActionChunk, "safety/executed", qos.SENSOR)
    stranger = robot.outsider("pad").create_publisher(Intervention, "intervention", qos.EVENTS)
    robot.matched(stranger)
    action = np.array([1.0] + [0.0] * 6)

    def insist() -> None:
        human = HumanAction(time.time_ns(), "stranger", True, "ee_delta", action)
        stranger.publish(messages.intervention_to_msg(human))

    timer = robot.node.create_timer(0.05, insist)
    robot.problem("safety_node", "from /pad, expected /teleoperation or /viewer_node")
    counted = "refused from other writers: intervention"
    robot.wait(lambda: int(robot.value("safety_node", counted) or 0) > 10, 60, "the refusals are counted")
    assert not executed  # nothing moves
    ann = person()
    robot.wait(lambda: "hand back, and leave" in ann.printed(), 60, "ann is at the terminal")
    ann.type("w")
    robot.wait(lambda: told(executed) == "human:ann", 60, "ann drives")
    ann.type("q")
    ann.close()
    robot.node.destroy_timer(timer)
    assert {one.policy_version.partition(":")[0] for one in executed} <= {"human", "hold"}
    assert not any("stranger" in one.policy_version for one in executed)


def test_a_leader_arm_moves_the_joints_and_one_that_breaks_hands_back(robot, person):
    executed = robot.listen(ActionChunk, "safety/executed", qos.SENSOR)
    said = robot.listen(Intervention, "intervention", qos.EVENTS)
    motors = ["--motors", "left", "up", "forth", "claw"]
    ann = person("tests.runtime.lerobotleader:BreakingLeader", *motors)
    robot.wait(lambda: "hand back, and leave" in ann.printed(), 60, "ann is at the terminal")
    robot.spin(2.0)
    ann.type(" ")
    robot.wait(lambda: said and told(executed) == "human:ann", 60, "the leader drives")
    assert said[-1].space == "joint_position" and executed[-1].space == "ee_delta"  # told as a policy acts
    ann.unplug.touch()
    robot.wait(lambda: not said[-1].active, 60, "the leader breaks")
    printed = ann.close()
    assert ann.process.returncode == 1
    assert "the device is gone: OSError('unplugged'); the robot was handed back" in printed


def test_a_leader_arm_keeps_its_grip_until_the_robot_is_stopped(robot, person):
    said = robot.listen(Intervention, "intervention", qos.EVENTS)
    stopped = robot.listen(Bool, "safety/stopped", qos.LATCHED)
    ann = person("tests.runtime.lerobotleader:LeRobotLeader", "--motors", "left", "up", "forth", "claw")
    robot.wait(lambda: "hand back, and leave" in ann.printed(), 60, "ann is at the terminal")
    ann.type(" ")
    robot.wait(lambda: said and said[-1].active, 60, "the leader drives")
    held = list(said[-1].action)
    ann.type("\x1b")
    robot.wait(lambda: stopped and stopped[-1].data and not said[-1].active, 60, "stopped, then handed back")
    assert {(one.space, tuple(one.action)) for one in said[:-1]} == {("joint_position", tuple(held))}
    ann.type("q")
    ann.close()


def test_a_robot_that_is_not_there_is_named(person):
    ann = person("--timeout-s", "2")
    assert "engram teleop: the safety node: not within 2 s" in ann.close()
    assert ann.process.returncode == 1


def test_a_demonstration_is_replayed_where_the_memory_sees_things_and_handed_back_at_its_end(robot, person, tmp_path):
    path = np.c_[np.linspace(0.0, 0.004, 12), np.zeros((12, 2))]
    gripper = np.r_[-np.ones(5), np.ones(4), -np.ones(3)]
    shown = dataset(tmp_path / "shown", "put the red cube on the mark", gripper, ["x", "y", "z"], path)
    said = robot.listen(Intervention, "intervention", qos.EVENTS)
    memory = robot.outsider("memory_node")
    graph = memory.create_publisher(SceneGraphUpdate, "memory/graph", qos.GRAPH)
    status = robot.node.create_publisher(TaskStatus, "task/status", qos.LATCHED)
    ann = person("--demonstrations", str(shown))
    robot.wait(lambda: "hand back, and leave" in ann.printed(), 60, "ann is at the terminal")
    ann.type(" ")
    robot.wait(lambda: "nothing is replayed: no goal runs" in ann.printed(), 60, "she is told that no goal runs")
    words = "put the blue cube on the mark"
    status.publish(TaskStatus(episode=1, state="running", instruction=words, robot_id="robot0"))
    unknown = "nothing is replayed: the memory sees no 'blue cube' now"
    robot.wait(lambda: unknown in ann.printed(), 60, "nor does the memory know the thing")
    there = {"blue cube": 0.002, "mark": 0.004}  # so near that an arm that stands still is where it should be
    nodes = tuple(
        replace(scene_node(f"object/{name}", name, x), pose=Pose(np.array([x, 0.0, 0.0]), np.array([1.0, 0, 0, 0])))
        for name, x in there.items()
    )
    told = messages.graph_to_msg(GraphUpdate(time.time_ns(), 1, True, nodes), "boot")
    robot.wait_telling(lambda: graph.publish(told), lambda: said and said[-1].active, 60, "it is replayed")
    assert said[-1].who == "ann"
    robot.wait(lambda: not said[-1].active, 60, "the robot is handed back at the end")
    driven = [one for one in said if one.active]
    closed = next(at for at, one in enumerate(driven) if one.action[-1] > 0)
    assert closed > 3 and driven[-1].action[-1] < 0  # it grasped, and let go
    ann.type("q")
    ann.close()
