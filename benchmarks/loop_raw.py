"""The limit: the messages of one control step cross to another process with plain rclpy, and a command comes back.

With ``hops`` 3 the command passes through one more process on its way, as ours does through the safety node.
"""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import Image, JointState
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from engram.nodes import qos

CAMERAS = ("front", "wrist")
JOINTS = 8
ROUND_TIMEOUT_S = 60.0


def _image(size: int) -> Image:
    msg = Image(height=size, width=size, encoding="rgb8", step=3 * size)
    msg.data.frombytes(memoryview(np.zeros(3 * size * size, np.uint8)))
    return msg


def _answer(stamp: int) -> JointTrajectory:
    answer = JointTrajectory(joint_names=[f"j{i}" for i in range(JOINTS)])
    answer.header.stamp.sec = stamp
    answer.points = [JointTrajectoryPoint(positions=[0.0] * JOINTS)]
    return answer


def peer(topic: str) -> None:
    """Answer each joint state with a trajectory on ``topic``, once both images of the same stamp are there."""
    rclpy.init()
    node = Node("raw_peer")
    back = node.create_publisher(JointTrajectory, topic, qos.COMMAND)
    seen: dict[int, int] = {}

    def take(msg: Image | JointState) -> None:
        stamp = msg.header.stamp.sec
        seen[stamp] = seen.get(stamp, 0) + 1
        if seen[stamp] == len(CAMERAS) + 1:
            back.publish(_answer(stamp))

    for camera in CAMERAS:
        node.create_subscription(Image, f"raw/{camera}", take, qos.SENSOR)
    node.create_subscription(JointState, "raw/joint_states", take, qos.SENSOR)
    _spin(node)


def relay() -> None:
    """Answer each chunk, and each joint state by nothing, as the third process of a loop."""
    rclpy.init()
    node = Node("raw_relay")
    back = node.create_publisher(JointTrajectory, "raw/command", qos.COMMAND)
    node.create_subscription(JointState, "raw/joint_states", lambda _: None, qos.SENSOR)
    node.create_subscription(
        JointTrajectory, "raw/chunk", lambda msg: back.publish(_answer(msg.header.stamp.sec)), qos.COMMAND
    )
    _spin(node)


def _spin(node: Node) -> None:
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        return


def _start(call: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", f"from engram.benchmarks import loop_raw; loop_raw.{call}"])


class Origin:
    """Sends the messages of one control step with plain rclpy and waits for the command that answers them."""

    def __init__(self, size: int, domain: int) -> None:
        self.context = rclpy.Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.node = Node("raw", context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.images = [(self.node.create_publisher(Image, f"raw/{c}", qos.SENSOR), _image(size)) for c in CAMERAS]
        self.joints = self.node.create_publisher(JointState, "raw/joint_states", qos.SENSOR)
        self.state = JointState(name=[f"j{i}" for i in range(JOINTS)], position=[0.0] * JOINTS, velocity=[0.0] * JOINTS)
        self.back: list[JointTrajectory] = []
        self.node.create_subscription(JointTrajectory, "raw/command", self.back.append, qos.COMMAND)

    def round_ms(self, stamp: int, timeout_s: float) -> float | None:
        """Return how long the step ``stamp`` took [ms]; None when no command came within ``timeout_s``."""
        begin = time.perf_counter()
        for publisher, image in self.images:
            image.header.stamp.sec = stamp
            publisher.publish(image)
        self.state.header.stamp.sec = stamp
        self.joints.publish(self.state)
        while not self.back or self.back[-1].header.stamp.sec != stamp:
            self.executor.spin_once(timeout_sec=0.2)
            if time.perf_counter() - begin > timeout_s:
                return None
        return 1e3 * (time.perf_counter() - begin)

    def close(self) -> None:
        """Leave the graph."""
        self.node.destroy_node()
        rclpy.try_shutdown(context=self.context)


def round_trips_ms(rounds: int, size: int, period_s: float, domain: int, hops: int = 2) -> np.ndarray:
    """Return ``rounds`` round trips [ms] of two ``size`` px images and joint states, ``period_s`` apart."""
    children = [_start("peer('raw/command')")] if hops == 2 else [_start("peer('raw/chunk')"), _start("relay()")]
    origin = Origin(size, domain)
    try:
        first = next((s for s in range(1, 200) if origin.round_ms(s, 0.5) is not None), None)  # all ends have met
        if first is None:
            raise TimeoutError("the raw peer was not discovered")
        times = []
        for stamp in range(first + 1, first + 1 + rounds):
            time.sleep(period_s)
            took = origin.round_ms(stamp, ROUND_TIMEOUT_S)
            if took is None:
                raise TimeoutError(f"round {stamp}: no answer from the raw peer")
            times.append(took)
        return np.array(times)
    finally:
        for child in children:
            child.terminate()
        for child in children:
            try:
                child.wait(10.0)
            except subprocess.TimeoutExpired:
                child.kill()  # rclpy sometimes sleeps through SIGTERM
                child.wait()
        origin.close()
