"""The safety node as a process: what it lets through, what it holds, and that it says why."""

import signal
import time
from dataclasses import replace

import numpy as np
import pytest
from rclpy.duration import Duration
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from engram.app import cli
from engram.core.pipeline import CommandPipeline
from engram.core.types import EMBEDDING_DIM, ActionChunk, EpisodeStatus, GraphUpdate, HumanAction, Pose, SceneNode
from engram.core.types import JointState as JointStateValue
from engram.nodes import messages, qos
from engram.runtime.bounds import TEXT_MAX
from engram.runtime.loop import Runtime
from engram_interfaces.msg import ActionChunk as ActionChunkMsg
from engram_interfaces.msg import Intervention, SceneGraphUpdate, TaskStatus
from engram_interfaces.srv import GetGraph
from tests.core.gantry import GANTRY, GantryKinematics, joints
from tests.runtime.test_loop import GantryWorld, GoRight

pytestmark = [pytest.mark.ros, pytest.mark.timeout(300)]
RIGHT = np.array([0.4, 0, 0, 0, 0, 0, -1.0])  # 0.02 m a step along x
STEP_NS = 100_000_000


def test_two_safety_nodes_do_not_share_the_folder_of_the_stop(graph):
    first = Robot(graph).process
    second = graph.start("safety_node", robot="tests.core.gantry:GANTRY")
    assert second.child.wait(240) == 1 and first.alive()
    assert f"{graph.stop_folder}: already being written by process {first.child.pid}" in second.output()
    graph.processes.remove(second)


class Robot:
    """Plays simulation and policy towards the safety node, one control step at a time."""

    def __init__(self, graph, **parameters):
        self.graph = graph
        self.parameters = {"robot": "tests.core.gantry:GANTRY", "diagnostics_period_s": 0.1, **parameters}
        self.process = graph.start("safety_node", **self.parameters)
        make = graph.node.create_publisher
        self.joints = make(JointState, "joint_states", qos.SENSOR)
        self.status = make(TaskStatus, "task/status", qos.LATCHED)
        self.chunks = make(ActionChunkMsg, "policy/action_chunk", qos.CHUNK)
        self.human = make(Intervention, "intervention", qos.EVENTS)
        self.commands = graph.listen(JointTrajectory, "command", qos.EVENTS)
        graph.active("safety_node")
        graph.matched(self.joints, self.status, self.chunks, self.human)

    def restart(self, number):
        """End the node by a signal and start it again."""
        self.process.end(number)
        self.graph.spin(0.5)  # what it said last is on its way
        self.graph.diagnostics.pop("safety_node", None)
        self.process = self.graph.start("safety_node", **self.parameters)
        self.graph.active("safety_node")
        self.graph.matched(self.joints, self.status, self.chunks, self.human)

    def heard(self, what):
        """Return how many ``chunks`` or ``interventions`` the node has taken in."""
        return int(self.graph.value("safety_node", what) or 0)

    def chunk(self, stamp_ns, actions, episode=1):
        return messages.chunk_to_msg(ActionChunk(stamp_ns, episode, "ee_delta", np.atleast_2d(actions), 0.1, 1, "v"))

    def step(self, stamp_ns, x=0.0, chunk=None, episode=1, human=None, state=None):
        """Show one step and return the command that answers it."""
        status = EpisodeStatus(stamp_ns, "robot0", episode, "reach", "go", 0, "running")
        before = self.heard("chunks"), self.heard("interventions")
        self.status.publish(messages.status_to_msg(status))
        assert self.status.wait_for_all_acked(Duration(seconds=60))
        if human is not None:
            self.human.publish(messages.intervention_to_msg(human))
            self.graph.wait(lambda: self.heard("interventions") > before[1], 60, "the human is heard")
        if chunk is not None:  # topics have no order between them: the chunk first, then the step
            self.chunks.publish(chunk)
            self.graph.wait(lambda: self.heard("chunks") > before[0], 60, "the chunk is taken in")
        self.joints.publish(messages.joints_to_msg(state or joints(x, stamp_ns=stamp_ns)))
        return self.graph.wait(lambda: self._answer(stamp_ns), 60, f"command for {stamp_ns}")

    def _answer(self, stamp_ns):
        found = [c for c in self.commands if messages.from_stamp(c.header.stamp) == stamp_ns]
        return list(found[-1].points[0].positions) if found else None


def test_lockstep_moves_holds_stops_and_listens_to_a_human(graph):
    robot = Robot(graph, lockstep=True, chunk_timeout_s=3.0, intervention_timeout_s=10.0)
    t = STEP_NS
    assert robot.step(t, chunk=robot.chunk(t, RIGHT)) == pytest.approx([0.02, 0, 0, 0])

    t += STEP_NS  # not finite: held at once, and named
    bad = robot.chunk(t, RIGHT)
    bad.actions[0] = float("nan")
    assert robot.step(t, x=0.02, chunk=bad) == pytest.approx([0.02, 0, 0, 0])
    graph.problem("safety_node", "1 of 7 values are not finite")

    t += STEP_NS  # a chunk of another episode does not count; after the limit the robot holds
    assert robot.step(t, x=0.02, chunk=robot.chunk(t, RIGHT, episode=9)) == pytest.approx([0.02, 0, 0, 0])
    graph.problem("safety_node", "hold: no_command")

    t += STEP_NS  # a human goes before the policy
    human = HumanAction(t, "ann", True, "ee_delta", -RIGHT * [1, 1, 1, 1, 1, 1, -1])
    assert robot.step(t, x=0.02, chunk=robot.chunk(t, RIGHT), human=human)[0] < 0.02
    heard = robot.heard("interventions")
    robot.human.publish(messages.intervention_to_msg(HumanAction(t, "ann", False, "ee_delta", RIGHT)))
    graph.wait(lambda: robot.heard("interventions") > heard, 60, "the human hands back")

    assert graph.call(Trigger, "safety/stop", Trigger.Request()).success
    for _ in range(2):  # latched
        t += STEP_NS
        assert robot.step(t, x=0.1, chunk=robot.chunk(t, RIGHT)) == pytest.approx([0, 0, 0, 0])
    graph.problem("safety_node", "stopped: by safety/stop; call safety/reset to go on")
    assert graph.call(Trigger, "safety/reset", Trigger.Request()).success
    t += STEP_NS
    assert robot.step(t, chunk=robot.chunk(t, RIGHT)) == pytest.approx([0.02, 0, 0, 0])


@pytest.mark.parametrize("executor", ["kept", "rclpy"])
def test_free_running_holds_on_stale_joint_states_and_names_a_missing_joint(graph, executor):
    robot = Robot(graph, lockstep=False, safety__stale_after_s=60.0, executor=executor)
    old = time.time_ns() - 600 * 10**9
    status = EpisodeStatus(old, "robot0", 1, "reach", "go", 0, "running")
    robot.status.publish(messages.status_to_msg(status))
    show = lambda: robot.joints.publish(messages.joints_to_msg(joints(0.3, stamp_ns=old)))  # noqa: E731
    graph.problem("safety_node", "hold: stale", telling=show)
    assert robot.commands == []
    now = time.time_ns()
    assert robot.step(now, x=0.3, chunk=robot.chunk(now, RIGHT, episode=2), episode=2)[0] == pytest.approx(0.32)
    msg = messages.joints_to_msg(joints(stamp_ns=time.time_ns()))
    msg.name = ["x", "y", "zet", "gripper"]
    show = lambda: robot.joints.publish(msg)  # noqa: E731
    graph.problem("safety_node", "unknown joint in joint_states 'z'; valid: gripper, x, y, zet", telling=show)


def test_only_the_nodes_that_are_named_begin_an_episode_and_move_the_arm(graph):
    """With one task/status and one chunk, whoever is on the network moved the arm."""
    bound = ["joint_states=test", "task/status=test", "policy/action_chunk=test"]
    graph.start("safety_node", robot="tests.core.gantry:GANTRY", diagnostics_period_s=0.1, writers=bound)
    commands = graph.listen(JointTrajectory, "command", qos.EVENTS)
    states = graph.node.create_publisher(JointState, "joint_states", qos.SENSOR)
    outsider = graph.outsider()
    status = outsider.create_publisher(TaskStatus, "task/status", qos.LATCHED)
    chunks = outsider.create_publisher(ActionChunkMsg, "policy/action_chunk", qos.CHUNK)
    graph.active("safety_node")
    graph.matched(states, status, chunks)

    def attack():
        now = time.time_ns()
        states.publish(messages.joints_to_msg(joints(stamp_ns=now)))
        status.publish(messages.status_to_msg(EpisodeStatus(now, "robot0", 7, "", "go", 0, "running")))
        chunk = ActionChunk(now, 7, "ee_delta", np.tile(RIGHT, (20, 1)), 0.1, 20, "v")
        chunks.publish(messages.chunk_to_msg(chunk, "robot0"))

    refused = lambda: "from /outsider, expected /test" in graph.message("safety_node")  # noqa: E731
    graph.wait_telling(attack, refused, 60, "the outsider is refused and named", period_s=0.1)
    graph.spin(1.0)
    assert not commands
    mine = graph.node.create_publisher(TaskStatus, "task/status", qos.LATCHED)
    graph.matched(mine)
    mine.publish(messages.status_to_msg(EpisodeStatus(time.time_ns(), "robot9", 7, "", "go", 0, "running")))
    graph.problem("safety_node", "robot of task/status: for robot 'robot9', this one is 'robot0'")
    assert not commands
    mine.publish(messages.status_to_msg(EpisodeStatus(time.time_ns(), "robot0", 7, "", "go", 0, "running")))
    tell = lambda: states.publish(messages.joints_to_msg(joints(stamp_ns=time.time_ns())))  # noqa: E731
    graph.wait_telling(tell, lambda: commands, 60, "the node that is named begins an episode", period_s=0.1)
    assert {tuple(msg.points[0].positions) for msg in commands} == {(0.0, 0.0, 0.0, 0.0)}  # of no chunk


class Chunks(GoRight):
    """Keeps the chunks that it gave, by stamp."""

    def __init__(self):
        super().__init__(speed=0.2)
        self.given = {}

    def act(self):
        chunk = super().act()
        self.given[chunk.stamp_ns] = chunk
        return chunk


def ann(step, stamp_ns):
    """Return what a human does at a step: relative motions at 2 and 3, joint positions at 5 and 6."""
    space = {2: "ee_delta", 3: "ee_delta", 5: "joint_position", 6: "joint_position"}.get(step)
    row = [0.03, 0, 0, 0.1] if space == "joint_position" else [-0.3, 0.1, 0, 0, 0, 0, 1.0]
    return HumanAction(stamp_ns, "ann", space is not None, space or "ee_delta", np.array(row))


def test_the_same_human_rows_give_the_same_commands_in_the_node_and_in_the_loop(graph):
    policy, seen = Chunks(), []
    pipeline = CommandPipeline(GantryKinematics(), GANTRY)
    loop = Runtime(GantryWorld(), policy, pipeline, human=lambda saw: ann(len(seen), saw.stamp_ns))
    expected = loop.run_episode("reach", 7, episode=1, on_step=lambda saw, *_: seen.append(saw.joints))
    robot = Robot(graph, lockstep=True, intervention_timeout_s=10.0)
    executed = graph.listen(ActionChunkMsg, "safety/executed", qos.every_step(qos.SENSOR, lockstep=True))
    graph.matched()
    commands = []
    for step, measured in enumerate(seen):
        chunk = policy.given.get(measured.stamp_ns)
        msg = None if chunk is None else messages.chunk_to_msg(chunk)
        now, before = ann(step, measured.stamp_ns), ann(step - 1, measured.stamp_ns)
        human = now if now.active or (step and before.active) else None
        commands.append(robot.step(measured.stamp_ns, chunk=msg, human=human, state=measured))
    np.testing.assert_array_equal(commands, expected.commands)
    graph.wait(lambda: len({messages.from_stamp(e.header.stamp) for e in executed}) == len(seen), 60, "all told")
    authors = [e.policy_version for e in sorted(executed, key=lambda e: messages.from_stamp(e.header.stamp))]
    assert authors[:8] == ["v0", "v0", "human:ann", "human:ann", "v0", "human:ann", "human:ann", "v0"]


def test_a_person_without_ros_tools_stops_and_releases_by_the_command_line(graph, capsys):
    Robot(graph)
    domain = ["--domain", str(graph.domain)]
    stopped = graph.listen(Bool, "safety/stopped", qos.LATCHED)
    assert cli.main(["stop", *domain, "--timeout-s", "60"]) == 0
    assert "stopped; call safety/reset" in capsys.readouterr().out
    graph.wait(lambda: stopped and stopped[-1].data, 60, "the stop")
    assert cli.main(["release", *domain, "--timeout-s", "60"]) == 0
    graph.wait(lambda: not stopped[-1].data, 60, "the release")
    assert cli.main(["stop", *domain, "--namespace", "nobody", "--timeout-s", "2"]) == 1  # no safety node answers there
    assert "safety/stop" in capsys.readouterr().err


def test_a_latched_stop_survives_kill_minus_nine(graph):
    robot = Robot(graph, lockstep=True)
    t = STEP_NS
    assert robot.step(t, chunk=robot.chunk(t, RIGHT)) == pytest.approx([0.02, 0, 0, 0])
    assert graph.call(Trigger, "safety/stop", Trigger.Request()).success
    robot.restart(signal.SIGKILL)
    graph.problem("safety_node", "stopped: by safety/stop; call safety/reset to go on")
    t += STEP_NS
    assert robot.step(t, x=0.02, chunk=robot.chunk(t, RIGHT)) == pytest.approx([0.02, 0, 0, 0])
    assert graph.call(Trigger, "safety/reset", Trigger.Request()).message == "released from: by safety/stop"
    robot.restart(signal.SIGKILL)
    graph.wait(lambda: graph.value("safety_node", "state") == "active", 60, "the node is back")
    assert "stopped: by" not in graph.message("safety_node")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_node_restarted_within_an_episode_holds_until_it_is_released(graph, number):
    robot = Robot(graph, lockstep=True)
    t = STEP_NS
    assert robot.step(t, chunk=robot.chunk(t, RIGHT)) == pytest.approx([0.02, 0, 0, 0])
    robot.restart(number)
    t += STEP_NS
    assert robot.step(t, x=0.02, chunk=robot.chunk(t, RIGHT)) == pytest.approx([0.02, 0, 0, 0])
    graph.problem("safety_node", "stopped: restarted")
    assert graph.call(Trigger, "safety/reset", Trigger.Request()).success
    t += STEP_NS
    assert robot.step(t, x=0.02, chunk=robot.chunk(t, RIGHT)) == pytest.approx([0.04, 0, 0, 0])


def test_a_node_killed_in_motion_gives_its_last_answer_again_and_brakes_from_there(graph):
    """At 2 m/s^2 it needs two steps to stop: it went 0.02 m and 0.04 m, and goes 0.02 m more."""
    robot = Robot(graph, lockstep=True, safety__acceleration_fraction=0.4)
    fast, x = np.array([1.0, 0, 0, 0, 0, 0, -1.0]), 0.0
    for step in (1, 2):
        x = robot.step(step * STEP_NS, x, robot.chunk(step * STEP_NS, fast))[0]
    robot.restart(signal.SIGKILL)
    robot.commands.clear()
    assert robot.step(2 * STEP_NS, 0.02) == pytest.approx([0.06, 0, 0, 0])
    assert robot.step(3 * STEP_NS, 0.05) == pytest.approx([0.08, 0, 0, 0])
    assert robot.step(4 * STEP_NS, 0.08) == pytest.approx([0.08, 0, 0, 0])


def test_silent_joints_hold_the_last_command_and_are_named(graph):
    robot = Robot(graph, lockstep=False, joints_timeout_s=1.0, safety__stale_after_s=60.0)
    now = time.time_ns()
    assert robot.step(now, chunk=robot.chunk(now, RIGHT)) == pytest.approx([0.02, 0, 0, 0])
    graph.problem("safety_node", "joints_lost: no valid joint_states")
    held = [c for c in robot.commands if messages.from_stamp(c.header.stamp) > now]
    assert held
    assert all(list(c.points[0].positions) == pytest.approx([0.02, 0, 0, 0]) for c in held)


def test_a_jump_stops_the_robot_and_is_named(graph):
    robot = Robot(graph, lockstep=True)
    t = STEP_NS
    assert robot.step(t, chunk=robot.chunk(t, RIGHT)) == pytest.approx([0.02, 0, 0, 0])
    t += STEP_NS
    assert robot.step(t, x=-1.5, chunk=robot.chunk(t, RIGHT)) == pytest.approx([0.02, 0, 0, 0])
    graph.problem("safety_node", "stopped: joint_jump: x measured at -1.500")


def crate_at(x: float) -> SceneNode:
    return SceneNode(
        id="crate", layer="object", label="crate", pose=Pose(np.array((x, 0.0, 0.3))),
        position_covariance=np.zeros((3, 3)), size=np.array((0.2, 0.4, 0.6)), color=np.zeros(3),
        embedding=np.zeros(EMBEDDING_DIM, np.float32), belief=1.0, state="visible", first_seen_ns=0, last_seen_ns=0,
        observations=1,
    )  # fmt: skip


def test_what_the_memory_has_seen_stops_the_arm(graph):
    """A crate whose near face is at x = 0.7, less what the box grows by; the hand's box reaches 0.03 ahead."""
    robot = "examples.robot:GANTRY"
    graph.start("safety_node", robot=robot, lockstep=True, memory_obstacles=True, diagnostics_period_s=0.1)
    make = graph.node.create_publisher
    seen = make(SceneGraphUpdate, "memory/graph", qos.GRAPH)
    states, status = make(JointState, "joint_states", qos.SENSOR), make(TaskStatus, "task/status", qos.LATCHED)
    chunks = make(ActionChunkMsg, "policy/action_chunk", qos.CHUNK)
    commands = graph.listen(JointTrajectory, "command", qos.EVENTS)
    graph.active("safety_node")
    graph.matched(seen, states, status, chunks)
    here = np.array((0.5, 0.0, 0.3, 0.0))

    def step(number):
        stamp = number * STEP_NS
        status.publish(messages.status_to_msg(EpisodeStatus(stamp, "robot0", 1, "reach", "go", 0, "running")))
        targets = np.array([[0.9, 0.0, 0.3, 0.0]])
        chunks.publish(messages.chunk_to_msg(ActionChunk(stamp, 1, "joint_position", targets, 0.1, 1, "v")))
        measured = JointStateValue(stamp, ("x", "y", "z", "grip"), here, np.zeros(4))
        states.publish(messages.joints_to_msg(measured))
        answer = graph.wait(
            lambda: [c for c in commands if messages.from_stamp(c.header.stamp) == stamp], 60, f"step {number}"
        )
        return np.array(answer[-1].points[0].positions)

    assert step(1).tolist() == here.tolist()  # the memory has told nothing yet: nobody drives
    graph.problem("safety_node", "obstacles_unknown: memory/graph has not told them yet")
    seen.publish(messages.graph_to_msg(GraphUpdate(0, 1, True, (crate_at(0.8),)), "boot"))
    graph.wait(lambda: graph.value("safety_node", "obstacles") == "1", 60, "the crate is known")
    for number in range(2, 9):
        here = step(number)
    assert 0.62 < here[0] <= 0.7 - 0.005 - 0.01 - 0.03 + 1e-4  # half of the grid, the margin, the hand
    graph.wait(lambda: graph.value("safety_node", "filter near hand/crate"), 60, "what was near is named")


def test_obstacles_in_another_frame_let_nobody_drive(graph):
    graph.start("safety_node", robot="examples.robot:GANTRY", memory_obstacles=True, diagnostics_period_s=0.1)
    seen = graph.node.create_publisher(SceneGraphUpdate, "memory/graph", qos.GRAPH)
    graph.active("safety_node")
    graph.matched(seen)
    crate = crate_at(0.8)
    for sequence, frame in ((1, "map"), (2, "base_link")):
        moved = replace(crate, pose=replace(crate.pose, frame=frame))
        seen.publish(messages.graph_to_msg(GraphUpdate(time.time_ns(), sequence, True, (moved,)), "boot", frame))
        if frame == "map":
            graph.problem("safety_node", "obstacles_unknown: memory/graph has objects in frame 'map'")
    graph.wait(lambda: "obstacles_unknown" not in graph.message("safety_node"), 60, "the crate is known")
    assert graph.value("safety_node", "obstacles") == "1"


@pytest.mark.parametrize("wrong", ["too large", "no pose", "ahead"])
def test_after_an_update_that_was_refused_nobody_drives_until_the_full_graph_is_there(graph, wrong):
    start = {"robot": "examples.robot:GANTRY", "memory_obstacles": True, "diagnostics_period_s": 0.1}
    graph.start("safety_node", **start)
    seen = graph.node.create_publisher(SceneGraphUpdate, "memory/graph", qos.GRAPH)
    graph.active("safety_node")
    graph.matched(seen)
    answers, asked = [], []

    def answer(_, response):
        """Publish the whole graph, and nothing where there is none."""
        asked.append(None)
        for told in answers[-1:]:
            seen.publish(told)
        return response

    def told(*crates, sequence=1, full=True):
        nodes = tuple(replace(crate_at(x), id=f"crate at {x}") for x in crates)
        return messages.graph_to_msg(GraphUpdate(time.time_ns(), sequence, full, nodes), "boot")

    graph.node.create_service(Trigger, "memory/publish_graph", answer)
    answers.append(told(0.8))
    graph.wait(lambda: graph.message("safety_node") == "active", 60, "the crate is known")
    update = told(0.9, sequence=2, full=False)
    if wrong == "too large":
        update.nodes[0].label = "x" * (TEXT_MAX + 1)
    elif wrong == "no pose":
        update.nodes[0].pose.orientation.w = 0.0
    else:
        update.header.stamp.sec += 1000
    answers.append(told(0.9, sequence=2))
    answers[-1].nodes[0].pose.orientation.w = 0.0  # refused as well
    before = len(asked)
    seen.publish(update)
    graph.problem("safety_node", "obstacles_unknown: memory/graph has not told them yet")
    graph.wait(lambda: len(asked) >= before + 2, 60, "it asks, and asks again")
    assert "obstacles_unknown" in graph.message("safety_node")
    assert graph.value("safety_node", "obstacles") == "1"
    answers.append(told(0.8, 0.9, sequence=2))
    graph.wait(lambda: "obstacles_unknown" not in graph.message("safety_node"), 60, "all is known again")
    assert graph.value("safety_node", "obstacles") == "2"


def test_whoever_answers_for_the_memory_takes_no_obstacle_away(graph):
    """Any process may offer the memory's services; the topic has one writer."""
    start = {"robot": "examples.robot:GANTRY", "memory_obstacles": True, "diagnostics_period_s": 0.1}
    graph.start("safety_node", **start)
    seen = graph.node.create_publisher(SceneGraphUpdate, "memory/graph", qos.GRAPH)
    asked = []

    def nothing(request, response):
        asked.append(request)
        if isinstance(request, GetGraph.Request):
            response.graph = messages.graph_to_msg(GraphUpdate(time.time_ns(), 9, True, ()), "another boot")
        return response

    for kind, name in ((GetGraph, "memory/get_graph"), (Trigger, "memory/publish_graph")):
        graph.node.create_service(kind, name, nothing)
    graph.active("safety_node")
    graph.matched(seen)
    graph.wait(lambda: len(asked) >= 2, 60, "it asks")
    graph.problem("safety_node", "obstacles_unknown")
    seen.publish(messages.graph_to_msg(GraphUpdate(time.time_ns(), 1, True, (crate_at(0.8),)), "boot"))
    graph.wait(lambda: graph.message("safety_node") == "active", 60, "the crate is known")
    before = len(asked)
    seen.publish(messages.graph_to_msg(GraphUpdate(time.time_ns(), 5, False, ()), "boot"))  # some before it are lost
    graph.wait(lambda: len(asked) >= before + 2, 60, "it asks, and asks again")
    assert "obstacles_unknown" in graph.message("safety_node")
    assert graph.value("safety_node", "obstacles") == "1"


def test_a_robot_that_nothing_could_keep_away_from_obstacles_is_told_of_none(graph):
    node = graph.start("safety_node", robot="tests.core.gantry:GANTRY", lockstep=True, memory_obstacles=True)
    assert node.child.wait(60) == 2
    assert "memory_obstacles: true, but robot 'gantry' has no motion barrier" in node.output()
    graph.processes.remove(node)
