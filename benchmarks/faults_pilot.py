"""Keeps episodes going while nodes are killed and attacked, and knows where the arm is."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from rclpy.client import Client
from rclpy.task import Future
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool

from engram.benchmarks.faults_loop import Loop, TrialError
from engram.benchmarks.faults_writers import Writers
from engram.core.robot import RobotConfig
from engram.nodes import messages, qos
from engram_interfaces.msg import TaskStatus
from engram_interfaces.srv import ResetSim

TASKS = ("reach", "push_to_mark", "pick_place", "stack")
MOVES_RAD = 0.002
"""A joint of the arm that gets this far from where it was seen last moves [rad]."""
PATIENCE_S = 10.0
"""A request to begin an episode that was not answered for so long is given up: its node was killed [s]."""


class Pilot:
    """Begins an episode with ``sim/reset`` whenever none runs; every episode has a seed of its own.

    Its :meth:`turn` belongs into the loop's ``every_turn``.
    """

    def __init__(self, loop: Loop, robot: RobotConfig, first_seed: int) -> None:
        self.robot, self.seed = robot, first_seed
        self.stopped = False
        self.episode: int | None = None  # the one that runs
        self.joints: np.ndarray | None = None  # (n,) newest measured
        self.moved_at = 0.0  # when the arm was seen to move last [monotonic s]
        self._still: np.ndarray | None = None  # (n,) where it was then
        self.begun = 0
        self.idle = False  # begin no episodes
        self._client = loop.client
        self._writers = Writers(loop.client.node)
        self._asked: tuple[Future, float] | None = None
        self._quiet_since = time.monotonic()
        node = loop.client.node
        self._reset: Client = node.create_client(ResetSim, "sim/reset")
        node.create_subscription(TaskStatus, "task/status", self._on_status, qos.LATCHED)
        node.create_subscription(JointState, "joint_states", self._on_joints, qos.SENSOR)
        node.create_subscription(Bool, "safety/stopped", self._on_stopped, qos.LATCHED)

    @property
    def running(self) -> bool:
        """Whether an episode runs."""
        return self.episode is not None

    def turn(self) -> None:
        """Begin an episode if it is time."""
        now = time.monotonic()
        if self._asked is not None:
            future, since = self._asked
            if future.done() or now - since > PATIENCE_S:
                if not future.done():
                    self._reset.remove_pending_request(future)
                self._asked, self._quiet_since = None, now
            return
        if self.running or self.idle or self.stopped or now - self._quiet_since < 0.5:
            return
        if self._reset.service_is_ready():
            request = ResetSim.Request(task=TASKS[self.seed % len(TASKS)], seed=self.seed)
            self.seed, self.begun = self.seed + 1, self.begun + 1
            self._asked = (self._reset.call_async(request), now)

    def moved(self, seconds: float) -> float:
        """Watch for a while; return how far a joint of the arm got from where it was [rad]."""
        if self.joints is None:
            raise TrialError("no joint states")
        start, farthest, end = self.joints, 0.0, time.monotonic() + seconds
        while time.monotonic() < end:
            self._client.spin(0.05)
            farthest = max(farthest, float(np.abs(self.joints - start)[:-1].max()))
        return farthest

    def wait_running(self, timeout_s: float) -> bool:
        """Wait until an episode runs; tell whether one does."""
        end = time.monotonic() + timeout_s
        while not self.running and time.monotonic() < end:
            self._client.spin(0.05)
        return self.running

    def _on_status(self, msg: TaskStatus, info: Any) -> None:
        if self._writers.name("task/status", info) != "sim_node":
            return
        was, self.episode = self.running, msg.episode if msg.state == "running" else None
        if was and not self.running:
            self._quiet_since = time.monotonic()

    def _on_joints(self, msg: JointState, info: Any) -> None:
        if self._writers.name("joint_states", info) != "sim_node":
            return
        self.joints = messages.joints_from_msg(msg, self.robot.joint_names).positions
        if self._still is None or np.abs(self.joints - self._still)[:-1].max() > MOVES_RAD:
            self.moved_at, self._still = time.monotonic(), self.joints

    def _on_stopped(self, msg: Bool, info: Any) -> None:
        if self._writers.name("safety/stopped", info) == "safety_node":
            self.stopped = msg.data
