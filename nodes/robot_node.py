"""The hardware side: a ros2_control robot, or any LeRobot ``Robot``, as the topics that the loop speaks.

``driver: ros2_control`` renames joints between ``hardware/joint_states`` -> ``joint_states`` and ``command`` ->
``joint_trajectory_controller/joint_trajectory``; cameras have their own drivers. So does ``driver: twin``, with a
simulation behind them. ``driver: lerobot`` reads motors and cameras, publishes them, and sends commands to the motors.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NoReturn

import numpy as np
from sensor_msgs.msg import CameraInfo, Image, JointState
from std_msgs.msg import Bool
from tf2_msgs.msg import TFMessage
from trajectory_msgs.msg import JointTrajectory

from engram.core.command_guard import CommandGuard
from engram.core.errors import InvalidInputError
from engram.core.registry import make_kinematics, make_robot
from engram.core.types import JointCommand, Pose
from engram.core.types import JointState as Joints
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.claims import subscribe_bound
from engram.nodes.process import run
from engram.runtime.camera_poses import CameraPoses
from engram.runtime.health import ERROR
from engram.runtime.parameters.robot import RobotNodeConfig
from engram.runtime.robot_drivers import LeRobotDriver, load_lerobot


class RobotNode(EngramNode):
    """Renames and forwards what the safety node decided, after a last look at it."""

    config_class = RobotNodeConfig

    def __init__(self) -> None:
        super().__init__("robot_node")

    def setup(self) -> None:
        """Connect to the hardware."""
        config = self.config
        self.robot = make_robot(config.robot)
        ours = self.robot.joint_names
        self.names = ours if config.hardware_joints == ("",) or config.driver == "twin" else config.hardware_joints
        if len(self.names) != len(ours):
            raise InvalidInputError(
                f"hardware_joints: {len(self.names)} names, expected {len(ours)}: {', '.join(ours)}"
            )
        if twice := [name for name in self.names if self.names.count(name) > 1]:
            raise InvalidInputError(f"hardware_joints: {twice[0]!r} is named twice, expected one name a joint")
        self.driver: LeRobotDriver | None = None
        self.cameras: tuple[str, ...] = ()  # of the LeRobot robot
        self.joints = self.create_publisher(JointState, "joint_states", qos.SENSOR)
        self.places: CameraPoses | None = None
        if config.calibrated:
            self.places = CameraPoses(self.robot, make_kinematics(self.robot))
            self.tf = self.create_publisher(TFMessage, "tf", qos.SENSOR)
            self.tf_static = self.create_publisher(TFMessage, "tf_static", qos.LATCHED)
        if config.driver == "lerobot":
            self._setup_lerobot()
        else:
            topic = "joint_trajectory_controller/joint_trajectory"
            self.trajectories = self.create_publisher(JointTrajectory, topic, qos.COMMAND)

    def _setup_lerobot(self) -> None:
        config = self.config
        self.driver = LeRobotDriver(
            load_lerobot(config.lerobot),
            self.robot,
            self.names,
            unit=config.unit,
            gripper_open=config.gripper_open,
            gripper_closed=config.gripper_closed,
        )
        features = self.driver.robot.observation_features
        there = tuple(name for name, shape in features.items() if isinstance(shape, tuple))
        self.cameras = there if config.cameras == ("",) else config.cameras
        self.images = {c: self.create_publisher(Image, f"camera/{c}/color/image_raw", qos.SENSOR) for c in self.cameras}
        self.infos = {c: self.create_publisher(CameraInfo, f"camera/{c}/camera_info", qos.SENSOR) for c in self.cameras}

    def start(self) -> None:
        """Forward states and commands."""
        self.heard = time.monotonic()
        self.measured: Joints | None = None  # newest
        config, self.safety_heard = self.config, False  # whether safety/stopped said how it stands
        fractions = config.velocity_fraction, config.acceleration_fraction
        self.guard = CommandGuard(self.robot, config.control_dt_s, config.stale_after_s, *fractions)
        subscribe_bound(self, Bool, "safety/stopped", self._on_stopped, qos.LATCHED)
        subscribe_bound(self, JointTrajectory, "command", self._on_command, qos.COMMAND)
        self.every(self.config.silent_after_s, self._watch, "hardware")
        if self.places is not None:
            self.tf_static.publish(_transforms(self.places.fixed, self.get_clock().now().nanoseconds))
            for camera, link in self.places.unknown.items():
                said = f"its link {link!r} is not between base and tool: other nodes must publish its tf"
                self.health.problem(f"camera {camera}", said, lasting=True)
            for camera in set(self.cameras) - set(self.robot.camera_names):
                said = f"robot {self.robot.name} has none of this name: other nodes must publish its tf and camera_info"
                self.health.problem(f"camera {camera}", said, lasting=True)
        if self.driver is None:
            subscribe_bound(self, JointState, "hardware/joint_states", self._on_hardware, qos.SENSOR)
            return
        self.reading = self.worker("read", lambda job: job(), capacity=1)
        self.writing = self.worker("write", self.driver.write, capacity=1)
        self.every(1.0 / self.config.rate_hz, lambda: self.reading.put(self._read), "read")

    def teardown(self) -> None:
        """Disconnect."""
        if self.driver is not None:
            self.driver.close()

    def _on_command(self, msg: JointTrajectory) -> None:
        command = messages.command_from_msg(msg, self.robot.joint_names)
        if refusal := self._refusal(command):  # the robot stays where it is
            self.health.problem("command", f"not executed: {refusal}", ERROR)
            return
        self.health.count("commands")
        if self.driver is not None:
            self.writing.put(command)
            return
        self.trajectories.publish(messages.command_to_msg(self._renamed(command)))

    def _refusal(self, command: JointCommand) -> str:
        """Return why ``command`` is not executed; empty: it is."""
        if not self.safety_heard:
            return "safety/stopped was not heard yet: whether the robot is stopped is not known"
        if self.measured is None:
            return "no joint state was measured yet"
        age_s = (self.get_clock().now().nanoseconds - command.stamp_ns) / 1e9
        return self.guard.refusal(command, self.measured, time.monotonic(), age_s)

    def _on_stopped(self, msg: Bool) -> None:
        self.safety_heard = True
        self.guard.stop(msg.data)

    def add_diagnostics(self) -> None:
        """Show what the guard refused."""
        if self.state == "active":
            for kind, count in self.guard.counts.items():
                self.health.counts[f"commands refused: {kind}"] = count

    def _renamed(self, command: JointCommand) -> JointCommand:
        # a stamp of 0 means "now" to ros2_control: it would drop a point that lies in the past
        return replace(command, names=self.names, stamp_ns=0)

    def _on_hardware(self, msg: JointState) -> None:
        self.heard = time.monotonic()
        self._show(replace(messages.joints_from_msg(msg, self.names), names=self.robot.joint_names))

    def _read(self) -> None:
        """Read motors and cameras and publish them; in the reading thread."""
        assert self.driver is not None
        stamp_ns = self.get_clock().now().nanoseconds
        with self.health.timed("read"):
            joints, images = self.driver.read(stamp_ns)
        self.heard = time.monotonic()
        for camera in self.cameras:
            if camera not in images:
                self.health.problem(f"camera {camera}", f"no image; the robot gives {', '.join(images) or 'none'}")
                continue
            self._publish_image(camera, images[camera], stamp_ns)
        self._show(joints)

    def _show(self, joints: Joints) -> None:
        """Publish what was measured; the poses of moving cameras first, which a step waits for."""
        if self.places is not None and (moving := self.places.moving(joints.positions)):
            self.tf.publish(_transforms(moving, joints.stamp_ns))
        self.measured = joints
        self.joints.publish(messages.joints_to_msg(joints))
        self.health.count("states")

    def _publish_image(self, camera: str, image: np.ndarray, stamp_ns: int) -> None:
        frame = messages.optical_frame(camera)
        if self.config.calibrated and camera in self.robot.camera_names:
            height, width, _ = image.shape
            matrix = self.robot.camera(camera).intrinsics(height, width)
            self.infos[camera].publish(messages.camera_info_to_msg(matrix, width, height, stamp_ns, frame))
        self.images[camera].publish(messages.color_to_msg(image, stamp_ns, frame))

    def _watch(self) -> None:
        silent = time.monotonic() - self.heard
        if silent > self.config.silent_after_s:
            source = "hardware/joint_states" if self.driver is None else f"LeRobot {self.driver.robot}"
            self.health.problem("hardware", f"{source}: nothing for {silent:.1f} s", ERROR)
        else:
            self.health.clear("hardware")


def _transforms(poses: dict[str, Pose], stamp_ns: int) -> TFMessage:
    frames = [messages.pose_to_transform(pose, messages.optical_frame(name), stamp_ns) for name, pose in poses.items()]
    return TFMessage(transforms=frames)


def main() -> NoReturn:
    """Run the node."""
    run(RobotNode)


if __name__ == "__main__":
    main()
