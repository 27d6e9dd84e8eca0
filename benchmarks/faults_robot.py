"""A robot without hardware that speaks ros2_control's topics, and whose sensors fail on demand.

It moves its joints where ``joint_trajectory_controller/joint_trajectory`` says and publishes ``hardware/joint_states``
and camera images. ``fake_robot/joints`` says how it really moves, and in ``header.frame_id`` which fault is on;
``fake_robot/fault`` chooses the fault.
"""

from __future__ import annotations

import time

import numpy as np
import rclpy
import tyro
from rclpy.clock import Clock, ClockType
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import CameraInfo, Image, JointState
from std_msgs.msg import String
from tf2_msgs.msg import TFMessage
from trajectory_msgs.msg import JointTrajectory

from engram.core.registry import make_robot
from engram.core.types import Pose
from engram.nodes import messages, qos

FAULTS = ("jump", "freeze", "drift", "nan", "silence", "swapped", "second_publisher", "camera_silence")
STATES_S, IMAGES_EVERY = 0.02, 5
IMAGE_PX = 64
JUMP_RAD, DRIFT_RAD_S, SECOND_RAD = 0.5, 0.05, 0.8
JOINT, OTHER = 1, 3
"""Joint whose sensor fails, and the one that it is exchanged with."""
MOTOR_SHARE = 4.0
"""The motors are so much faster than the robot's limits: what the limits let through can be seen."""


class FakeRobot(Node):
    """Joints that go where they are told, and sensors that say so, or something else."""

    def __init__(self, robot: str) -> None:
        super().__init__("fake_robot")
        self.robot = make_robot(robot)
        self.names = list(self.robot.joint_names)
        self.position = np.array((*self.robot.home, self.robot.gripper_open))
        self.goal, self.arrives = self.position.copy(), 0.0
        self._speed = np.array((*self.robot.velocity_max, self.robot.gripper_velocity_max)) * MOTOR_SHARE
        self.fault, self.since, self.at_fault = "", 0.0, self.position.copy()
        self._tick, self._last = 0, self._now_s()
        self.states = self.create_publisher(JointState, "hardware/joint_states", qos.SENSOR)
        self.truth = self.create_publisher(JointState, "fake_robot/joints", qos.SENSOR)
        cameras = self.robot.camera_names
        make = self.create_publisher
        self.images = {c: make(Image, f"camera/{c}/color/image_raw", qos.SENSOR) for c in cameras}
        self.infos = {c: make(CameraInfo, f"camera/{c}/camera_info", qos.SENSOR) for c in cameras}
        self.frames = make(TFMessage, "tf_static", qos.LATCHED)
        self._publish_frames()
        controller = "joint_trajectory_controller/joint_trajectory"
        self.create_subscription(JointTrajectory, controller, self._on_trajectory, qos.COMMAND)
        self.create_subscription(String, "fake_robot/fault", self._on_fault, qos.LATCHED)
        self.second = rclpy.create_node("second_publisher")
        self.others = self.second.create_publisher(JointState, "joint_states", qos.SENSOR)
        steady = Clock(clock_type=ClockType.STEADY_TIME)  # a sensor goes on when the machine's clock is set
        self.create_timer(STATES_S, self._turn, clock=steady)

    def _on_trajectory(self, msg: JointTrajectory) -> None:
        if not msg.points or sorted(msg.joint_names) != sorted(self.names):
            return
        point = msg.points[-1]
        told = dict(zip(msg.joint_names, point.positions, strict=True))
        self.goal = np.array([told[name] for name in self.names])
        duration = point.time_from_start
        self.arrives = self._now_s() + duration.sec + duration.nanosec / 1e9

    def _on_fault(self, msg: String) -> None:
        if msg.data != self.fault:
            self.fault, self.since, self.at_fault = msg.data, self._now_s(), self.position.copy()

    def _now_s(self) -> float:
        """Return the time of a clock that nobody sets, as motors know no other."""
        return time.monotonic()

    def _turn(self) -> None:
        now, stamp = self._now_s(), self.get_clock().now().to_msg()
        passed, self._last = now - self._last, now
        left = max(self.arrives - now, STATES_S)
        step = (self.goal - self.position) * min(1.0, passed / left)
        self.position = self.position + np.clip(step, -self._speed * passed, self._speed * passed)
        self._publish(self.truth, self.position, stamp, self.fault)
        measured = self._measured(now)
        if measured is not None:
            self._publish(self.states, measured, stamp)
        if self.fault == "second_publisher":
            self._publish(self.others, self.position + SECOND_RAD, stamp)
        self._tick += 1
        if self._tick % IMAGES_EVERY == 0 and self.fault != "camera_silence":
            self._publish_images(messages.from_stamp(stamp))

    def _measured(self, now: float) -> np.ndarray | None:
        """Return what the joint sensors say (n,) rad; None = nothing."""
        said = self.position.copy()
        if self.fault == "jump":
            said[JOINT] += JUMP_RAD
        elif self.fault == "freeze":
            said = self.at_fault
        elif self.fault == "drift":
            said[JOINT] += DRIFT_RAD_S * (now - self.since)
        elif self.fault == "nan":
            said[JOINT] = np.nan
        elif self.fault == "swapped":
            said[[JOINT, OTHER]] = said[[OTHER, JOINT]]
        return None if self.fault == "silence" else said

    def _publish(self, publisher: object, positions: np.ndarray, stamp: object, frame: str = "") -> None:
        zeros = [0.0] * len(self.names)
        msg = JointState(name=self.names, position=positions.tolist(), velocity=zeros, effort=zeros)
        msg.header.stamp, msg.header.frame_id = stamp, frame
        publisher.publish(msg)  # type: ignore[attr-defined]

    def _publish_frames(self) -> None:
        """Tell where the cameras are: above the table, looking down."""
        pose = Pose(np.array([0.5, 0.0, 1.0]), np.array([0.0, 1.0, 0.0, 0.0]))
        now_ns = self.get_clock().now().nanoseconds
        poses = [messages.pose_to_transform(pose, messages.optical_frame(c), now_ns) for c in self.images]
        self.frames.publish(TFMessage(transforms=poses))

    def _publish_images(self, stamp_ns: int) -> None:
        image = np.full((IMAGE_PX, IMAGE_PX, 3), 90, np.uint8)
        image[:, : self._tick % IMAGE_PX] = 160  # no two pictures are alike
        matrix = np.array([[60.0, 0.0, IMAGE_PX / 2], [0.0, 60.0, IMAGE_PX / 2], [0.0, 0.0, 1.0]])
        for camera in self.images:
            frame = messages.optical_frame(camera)
            self.infos[camera].publish(messages.camera_info_to_msg(matrix, IMAGE_PX, IMAGE_PX, stamp_ns, frame))
            self.images[camera].publish(messages.color_to_msg(image, stamp_ns, frame))


def main(robot: str = "panda_2f85") -> None:
    """Be a robot until a signal ends it."""
    rclpy.init()
    node = FakeRobot(robot)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    try:
        executor.spin()
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node.second.destroy_node()
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    tyro.cli(main)
