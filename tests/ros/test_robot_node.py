"""The robot node as a process, between a robot that the test knows by hand and the safety node."""

import time

import numpy as np
import pytest
from sensor_msgs.msg import CameraInfo, Image, JointState
from std_msgs.msg import Bool
from tf2_msgs.msg import TFMessage
from trajectory_msgs.msg import JointTrajectory

from engram.core.types import ActionChunk, EpisodeStatus, JointCommand
from engram.nodes import messages, qos
from engram_interfaces.msg import ActionChunk as ActionChunkMsg
from engram_interfaces.msg import TaskStatus
from tests.core.gantry import GANTRY
from tests.runtime.lerobotgantry import MOTORS

pytestmark = [pytest.mark.ros, pytest.mark.timeout(300)]


def x_of(msg: JointState) -> float:
    return messages.joints_from_msg(msg, GANTRY.joint_names).positions[0]


class LeRobotGraph:
    """robot_node on a LeRobot robot that goes where it is told, and safety_node before it."""

    def __init__(self, graph):
        self.graph = graph
        self.images = graph.listen(Image, "camera/front/color/image_raw", qos.SENSOR)
        self.infos = graph.listen(CameraInfo, "camera/front/camera_info", qos.SENSOR)
        self.poses = graph.listen(TFMessage, "tf_static", qos.LATCHED)
        self.moving = graph.listen(TFMessage, "tf", qos.SENSOR)
        self.joints = graph.listen(JointState, "joint_states", qos.SENSOR)
        self.commands = graph.listen(JointTrajectory, "command", qos.EVENTS)
        make = graph.node.create_publisher
        self.status = make(TaskStatus, "task/status", qos.LATCHED)
        self.chunks = make(ActionChunkMsg, "policy/action_chunk", qos.CHUNK)
        graph.start(
            "robot_node",
            driver="lerobot",
            lerobot="tests.runtime.lerobotgantry:LeRobotGantry",
            robot="tests.core.gantry:SEEN",
            hardware_joints=list(MOTORS),
            unit="rad",
            gripper_closed=100.0,
            calibrated=True,
        )
        graph.start("safety_node", robot="tests.core.gantry:SEEN")
        graph.active("robot_node", "safety_node")

    def begin(self):
        stamp = self.graph.wait(lambda: self.joints, 60, "joint states")[-1].header.stamp
        status = EpisodeStatus(messages.from_stamp(stamp), "robot0", 1, "", "go right", 0, "running")
        self.status.publish(messages.status_to_msg(status))

    def ask(self, action, rows):
        """Publish a chunk that answers the newest joint state."""
        stamp_ns = messages.from_stamp(self.joints[-1].header.stamp)
        chunk = ActionChunk(stamp_ns, 1, "ee_delta", np.tile(action, (rows, 1)), 0.1, rows, "v")
        self.chunks.publish(messages.chunk_to_msg(chunk))


def test_a_lerobot_robot_is_seen_moved_and_held_when_commands_end_or_come_late(graph):
    robot = LeRobotGraph(graph)
    graph.wait(lambda: robot.images and robot.infos and robot.poses and robot.moving, 60, "images, camera_info and tf")
    image = messages.color_from_msg(robot.images[-1], "front")
    assert (image.shape, image.min(), image.max()) == ((4, 6, 3), 7, 7)
    assert robot.images[-1].header.frame_id == robot.infos[-1].header.frame_id == "front_optical_frame"
    np.testing.assert_array_equal(robot.infos[-1].k.reshape(3, 3), [[4, 0, 3], [0, 4, 2], [0, 0, 1]])
    (fixed,), (moving,) = robot.poses[-1].transforms, robot.moving[-1].transforms
    assert (fixed.child_frame_id, fixed.transform.translation.y) == ("front_optical_frame", 0.2)
    assert (moving.header.frame_id, moving.child_frame_id) == ("base_link", "wrist_optical_frame")
    assert moving.transform.translation.z == 0.1
    graph.problem("robot_node", "its link 'elbow' is not between base and tool", 60)

    robot.begin()
    right = [0.4, 0, 0, 0, 0, 0, -1.0]
    moved = lambda: x_of(robot.joints[-1]) > 0.03  # noqa: E731
    graph.wait_telling(lambda: robot.ask(right, rows=20), moved, 60, "the robot moves to the right", period_s=2.0)
    robot.commands.clear()  # the chunk runs out after 2 s, and no other comes
    graph.problem("safety_node", "hold: no_command", 60)
    told = lambda: robot.commands and robot.commands[-1].points[-1].positions[0]  # noqa: E731
    still = lambda: len(robot.joints) >= 10 and {x_of(msg) for msg in robot.joints[-10:]} == {told()}  # noqa: E731
    graph.wait(still, 60, "ten joint states in a row where the robot is told to hold")
    held = x_of(robot.joints[-1])

    bypass = graph.outsider().create_publisher(JointTrajectory, "command", qos.COMMAND)
    graph.diagnostics.clear()

    def refused() -> bool:
        command = JointCommand(time.time_ns(), GANTRY.joint_names, np.array([held + 0.05, 0, 0, 0]), 0.1)
        bypass.publish(messages.command_to_msg(command))
        return "from /outsider, but /safety_node writes it" in graph.message("robot_node")

    graph.wait(refused, 60, "a second publisher of commands is refused and named")
    assert int(graph.value("robot_node", "refused from other writers: command")) >= 1
    assert x_of(robot.joints[-1]) == held


def test_a_ros2_control_robot_is_renamed_both_ways_and_its_silence_is_named(graph):
    names = ["claw", "lift", "left", "forth"]  # of the hardware, in an order of its own
    graph.start("robot_node", robot="tests.core.gantry:GANTRY", hardware_joints=["left", "forth", "lift", "claw"])
    hardware = graph.node.create_publisher(JointState, "hardware/joint_states", qos.SENSOR)
    commands = graph.node.create_publisher(JointTrajectory, "command", qos.COMMAND)
    joints = graph.listen(JointState, "joint_states", qos.SENSOR)
    trajectories = graph.listen(JointTrajectory, "joint_trajectory_controller/joint_trajectory", qos.COMMAND)
    stopped = graph.node.create_publisher(Bool, "safety/stopped", qos.LATCHED)
    graph.active("robot_node")
    graph.problem("robot_node", "hardware/joint_states: nothing for", 60)
    graph.wait(lambda: hardware.get_subscription_count() and commands.get_subscription_count(), 60, "matching")

    state = JointState(name=names, position=[0.8, 0.2, 0.1, 0.3])
    state.header.stamp = messages.to_stamp(time.time_ns())
    heard = graph.wait_telling(lambda: hardware.publish(state), lambda: joints, 60, "joint states")
    seen = messages.joints_from_msg(heard[-1], GANTRY.joint_names)
    np.testing.assert_array_equal(seen.positions, [0.1, 0.3, 0.2, 0.8])

    def tell(x=0.11, age_s=0.0):
        stamp_ns = time.time_ns() - int(age_s * 1e9)
        command = JointCommand(stamp_ns, GANTRY.joint_names, np.array([x, 0.31, 0.21, 0.0]), 0.1)
        commands.publish(messages.command_to_msg(command))

    def refused(words, **how):
        said = lambda: words in graph.message("robot_node")  # noqa: E731
        graph.wait_telling(lambda: tell(**how), said, 60, words, period_s=0.2)

    refused("safety/stopped was not heard yet")  # without it nobody knows whether the robot is stopped
    stopped.publish(Bool(data=False))
    refused("position: x 5.000 outside its limits", x=6.0)
    refused("velocity: x 0.500 away", x=0.6)
    refused(" s old, not executed; at most 0.5 s", age_s=2.0)
    assert not trajectories
    sent = graph.wait_telling(tell, lambda: trajectories, 60, "the hardware's command")[-1]
    assert sent.joint_names == ["left", "forth", "lift", "claw"]
    np.testing.assert_array_equal(sent.points[0].positions, [0.11, 0.31, 0.21, 0.0])
    assert messages.from_stamp(sent.header.stamp) == 0  # now


@pytest.mark.parametrize(
    ("joints", "told"),
    [
        (["left", "claw"], "hardware_joints: 2 names, expected 4: x, y, z, gripper"),
        (["left", "forth", "forth", "claw"], "hardware_joints: 'forth' is named twice, expected one name a joint"),
    ],
)
def test_hardware_that_is_described_wrongly_is_an_error_and_the_end(graph, joints, told):
    process = graph.start("robot_node", robot="tests.core.gantry:GANTRY", hardware_joints=joints)
    assert process.child.wait(240) == 2  # what can never work: it need not be started again
    assert told in process.output()
    graph.processes.remove(process)
