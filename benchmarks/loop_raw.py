"""The limit: the messages of one control step cross to another process with plain rclpy, and a command comes back."""

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
DISCOVERY_TIMEOUT_S = 60.0


def _image(size: int) -> Image:
    msg = Image(height=size, width=size, encoding="rgb8", step=3 * size)
    msg.data.frombytes(memoryview(np.zeros(3 * size * size, np.uint8)))
    return msg


def peer() -> None:
    """Answer each joint state with a command, once both images of the same stamp are there."""
    rclpy.init()
    node = Node("raw_peer")
    back = node.create_publisher(JointTrajectory, "raw/command", qos.COMMAND)
    seen: dict[int, int] = {}

    def take(msg: Image | JointState) -> None:
        stamp = msg.header.stamp.sec
        seen[stamp] = seen.get(stamp, 0) + 1
        if seen[stamp] == len(CAMERAS) + 1:
            answer = JointTrajectory(joint_names=[f"j{i}" for i in range(JOINTS)])
            answer.header.stamp.sec = stamp
            answer.points = [JointTrajectoryPoint(positions=[0.0] * JOINTS)]
            back.publish(answer)

    for camera in CAMERAS:
        node.create_subscription(Image, f"raw/{camera}", take, qos.SENSOR)
    node.create_subscription(JointState, "raw/joint_states", take, qos.SENSOR)
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        return


def round_trips_ms(rounds: int, size: int, period_s: float, domain: int) -> np.ndarray:
    """Return ``rounds`` round trips [ms] of two ``size`` px images and joint states, ``period_s`` apart."""
    child = subprocess.Popen([sys.executable, "-c", "from engram.benchmarks.loop_raw import peer; peer()"])
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=domain)
    node = Node("raw", context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    try:
        images = [(node.create_publisher(Image, f"raw/{c}", qos.SENSOR), _image(size)) for c in CAMERAS]
        joints = node.create_publisher(JointState, "raw/joint_states", qos.SENSOR)
        back: list[JointTrajectory] = []
        node.create_subscription(JointTrajectory, "raw/command", back.append, qos.COMMAND)
        deadline = time.monotonic() + DISCOVERY_TIMEOUT_S
        while joints.get_subscription_count() == 0 or any(p.get_subscription_count() == 0 for p, _ in images):
            executor.spin_once(timeout_sec=0.05)
            if time.monotonic() > deadline:
                raise TimeoutError("the raw peer was not discovered")
        state = JointState(name=[f"j{i}" for i in range(JOINTS)], position=[0.0] * JOINTS, velocity=[0.0] * JOINTS)
        times = []
        for stamp in range(1, rounds + 1):
            begin = time.perf_counter()
            for publisher, image in images:
                image.header.stamp.sec = stamp
                publisher.publish(image)
            state.header.stamp.sec = stamp
            joints.publish(state)
            while not back or back[-1].header.stamp.sec != stamp:
                executor.spin_once(timeout_sec=1.0)
                if time.perf_counter() - begin > DISCOVERY_TIMEOUT_S:
                    raise TimeoutError(f"round {stamp}: no answer from the raw peer")
            times.append(1e3 * (time.perf_counter() - begin))
            time.sleep(period_s)
        return np.array(times)
    finally:
        child.terminate()
        child.wait()
        node.destroy_node()
        rclpy.try_shutdown(context=context)
