"""A process that watches a robot: what it is told, how it moves, what experience is sent.

It believes only the rightful writer of each topic, told by the writer's identity in DDS: what others publish on the
same topics is what the nodes have to refuse. Every finding is a line of JSON in a file.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import rclpy
import tyro
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool
from trajectory_msgs.msg import JointTrajectory

from engram.benchmarks.faults_limits import CommandJudge, MotionJudge
from engram.benchmarks.faults_timeline import Command, Episode, Measured, Said, Stopped, Timeline
from engram.benchmarks.faults_writers import Writers
from engram.core.control import ControlConfig
from engram.core.registry import make_robot
from engram.nodes import messages, qos
from engram_interfaces.msg import Experience, TaskStatus


@dataclass(frozen=True)
class WatchConfig:
    """What is watched."""

    output: tyro.conf.Positional[Path]
    """File for findings, one JSON object a line."""
    robot: str = "panda_2f85"
    """Robot whose limits hold."""
    body: str = "sim_node"
    """Node that publishes how the arm really moves."""
    joints: str = "joint_states"
    """Its topic."""
    status: str = "sim_node"
    """Node that publishes task/status."""
    experience: bool = True
    """Whether a policy sends experience."""


class Watch(Node):
    """Judges commands and motions as they come."""

    def __init__(self, config: WatchConfig, out: TextIO) -> None:
        super().__init__("faults_watch")
        self.config, self._out = config, out
        self.robot = make_robot(config.robot)
        commands = CommandJudge(self.robot, ControlConfig().control_dt_s, getattr(self.robot, "jerk_max", None))
        self.timeline = Timeline(commands, MotionJudge(self.robot))
        self.counts: Counter[str] = Counter()
        self.writers = Writers(self)
        listen = self.create_subscription
        self._ends = [
            listen(JointTrajectory, "command", self._on_command, qos.EVENTS),
            listen(JointState, config.joints, self._on_joints, qos.EVENTS),
            listen(TaskStatus, "task/status", self._on_status, qos.LATCHED),
            listen(Bool, "safety/stopped", self._on_stopped, qos.LATCHED),
        ]
        if config.experience:
            self._ends.append(listen(Experience, "experience", self._on_experience, qos.EXPERIENCE))
        self._ready = False
        self.create_timer(0.25, self._tick)

    def write(self, kind: str, at_s: float | None = None, **more: Any) -> None:
        """Write down one finding of now, or of ``at_s``."""
        at_s = time.monotonic() if at_s is None else at_s
        print(json.dumps({"at": at_s, "kind": kind, **more}), file=self._out, flush=True)

    def _said(self, info: Any, what: Said) -> None:
        self.timeline.add(info["source_timestamp"], time.monotonic(), what)

    def _rightful(self, topic: str, info: Any, node: str) -> bool:
        self.counts[topic] += 1
        if self.writers.name(topic, info) == node:
            return True
        self.counts[f"{topic} of others"] += 1
        return False

    def _on_command(self, msg: JointTrajectory, info: Any) -> None:
        if not self._rightful("command", info, "safety_node"):
            return
        command = messages.command_from_msg(msg, self.robot.joint_names)
        self._said(info, Command(command.stamp_ns, command.positions, command.duration_s))

    def _on_joints(self, msg: JointState, info: Any) -> None:
        if not self._rightful(self.config.joints, info, self.config.body):
            return
        joints = messages.joints_from_msg(msg, self.robot.joint_names)
        self._said(info, Measured(joints.stamp_ns, joints.positions))

    def _on_status(self, msg: TaskStatus, info: Any) -> None:
        if self._rightful("task/status", info, self.config.status):
            self._said(info, Episode(msg.episode, msg.state == "running"))

    def _on_stopped(self, msg: Bool, info: Any) -> None:
        if self._rightful("safety/stopped", info, "safety_node"):
            self._said(info, Stopped(msg.data))

    def _on_experience(self, msg: Experience, info: Any) -> None:
        if self._rightful("experience", info, "policy_node"):
            stamp = messages.from_stamp(msg.header.stamp)
            self.write("experience", id=[msg.robot_id, msg.boot_id, msg.sequence], episode=msg.episode, stamp_ns=stamp)

    def _tick(self) -> None:
        for at_s, one in self.timeline.judge(time.monotonic()):
            self.write(one.kind, at_s, text=one.text)
        if not self._ready and all(one.get_publisher_count() for one in self._ends):
            self._ready = True
            self.write("ready")
        moved = self.counts[self.config.joints] - self.counts[f"{self.config.joints} of others"]
        told = self.counts["command"] - self.counts["command of others"]
        self.write("counts", commands=told, motions=moved)


def main() -> None:
    """Watch until a signal ends it."""
    config = tyro.cli(WatchConfig)
    with config.output.open("w") as out:
        rclpy.init()
        node = Watch(config, out)
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        try:
            executor.spin()
        except (KeyboardInterrupt, ExternalShutdownException):
            node._tick()
        finally:
            node.destroy_node()
            rclpy.try_shutdown()


if __name__ == "__main__":
    main()
