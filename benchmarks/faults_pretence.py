"""Messages of a process that may not drive and pretends to: well formed, of now, for this robot, within its limits.

Nothing in them is wrong but their writer, so that nothing but the writer's identity keeps them from the arm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from rosgraph_msgs.msg import Clock
from safetensors.numpy import save
from std_msgs.msg import Bool
from tf2_msgs.msg import TFMessage

from engram.core.control import ControlConfig
from engram.core.robot import RobotConfig
from engram.core.types import (
    ActionChunk,
    EpisodeStatus,
    HumanAction,
    JointCommand,
    JointState,
    MemoryTokens,
    Pose,
    Verdict,
)
from engram.learning.weights.manifest import make_manifest
from engram.nodes import messages

WHO = "pretender"
EPISODE = 1000
"""An episode that nobody has begun; a new one begins every few messages."""
STEPS_AN_EPISODE = 40
ROWS = 8
REACH_RAD = 0.2
"""How far from where a joint is it is to go: within what the limits let through in a second [rad]."""
TOKENS, WIDTH = 4, 8
WEIGHTS = save({"w": np.zeros(3, np.float32)})


class Pretender:
    """Makes the next message for a topic, as one who wants the arm to move would.

    Args:
        robot: the robot whose joints are heard.
        robot_id: its name.
    """

    def __init__(self, robot: RobotConfig, robot_id: str = "robot0") -> None:
        self.robot, self.robot_id = robot, robot_id
        self.joints = np.array((*robot.home, robot.gripper_open))  # (n,) as measured last
        self._dt_s = ControlConfig().control_dt_s
        self._made: Counter[str] = Counter()  # by topic
        self._count = 0  # of the message that is made
        self._makers: dict[str, Callable[[int], Any]] = {
            "task/status": self._status,
            "task/step": self._status,
            "policy/action_chunk": self._chunk,
            "intervention": self._intervention,
            "command": self._command,
            "joint_states": self._joints,
            "hardware/joint_states": self._joints,
            "safety/stopped": lambda now_ns: Bool(data=False),
            "safety/executed": self._executed,
            "memory/context": self._context,
            "verdict": self._verdict,
            "policy/manifest": self._manifest,
            "policy/weights": lambda now_ns: next(messages.weight_chunks_to_msgs(self._version, WEIGHTS, 1 << 16)),
            "tf": self._transforms,
            "tf_static": self._transforms,
            "clock": lambda now_ns: Clock(clock=Time(sec=now_ns // 10**9, nanosec=now_ns % 10**9)),
        }

    @property
    def topics(self) -> tuple[str, ...]:
        """Names of the topics that it has messages for."""
        return tuple(self._makers)

    def message(self, topic: str, now_ns: int) -> Any:
        """Return the next message for ``topic``, a name with or without a slash before it, stamped ``now_ns``."""
        name = topic.lstrip("/")
        self._count, self._made[name] = self._made[name], self._made[name] + 1
        return self._makers[name](now_ns)

    @property
    def _episode(self) -> int:
        return EPISODE + self._count // STEPS_AN_EPISODE

    @property
    def _version(self) -> str:
        return f"{WHO}-{self._episode}"

    @property
    def _target(self) -> np.ndarray:
        """Return joints (n,) a little away from where they are, where they may be."""
        reach = np.full(len(self.robot.arm_joints), REACH_RAD)
        low, high = np.array(self.robot.position_min), np.array(self.robot.position_max)
        arm = self.joints[:-1]
        return np.append(np.where(arm + reach < high, arm + reach, np.maximum(arm - reach, low)), self.joints[-1])

    def _actions(self) -> tuple[str, np.ndarray]:
        """Return a space and the actions of a chunk in it (rows, dim); each has its half of an episode."""
        if self._count % STEPS_AN_EPISODE < STEPS_AN_EPISODE // 2:
            return "ee_delta", np.tile([0.5, 0.5, 0.3, 0.0, 0.0, 0.0, -1.0], (ROWS, 1))
        return "joint_position", np.linspace(self.joints, self._target, ROWS)

    def _status(self, now_ns: int) -> Any:
        step = self._count % STEPS_AN_EPISODE
        return messages.status_to_msg(
            EpisodeStatus(now_ns, self.robot_id, self._episode, "reach", "wave", step, "running")
        )

    def _chunk(self, now_ns: int) -> Any:
        space, actions = self._actions()
        chunk = ActionChunk(now_ns, self._episode, space, actions, self._dt_s, 4, WHO)
        return messages.chunk_to_msg(chunk, self.robot_id)

    def _intervention(self, now_ns: int) -> Any:
        space, actions = self._actions()
        return messages.intervention_to_msg(HumanAction(now_ns, WHO, True, space, actions[-1]))

    def _command(self, now_ns: int) -> Any:
        small = self.joints + 0.1 * (self._target - self.joints)
        return messages.command_to_msg(JointCommand(now_ns, self.robot.joint_names, small, self._dt_s))

    def _joints(self, now_ns: int) -> Any:
        apart = self.joints + 0.1 * (self._target - self.joints)
        return messages.joints_to_msg(JointState(now_ns, self.robot.joint_names, apart, np.zeros(len(apart))))

    def _executed(self, now_ns: int) -> Any:
        row = ActionChunk(now_ns, self._episode, "ee_delta", np.zeros((1, 7)), self._dt_s, 1, f"human:{WHO}")
        return messages.chunk_to_msg(row, self.robot_id)

    def _context(self, now_ns: int) -> Any:
        tokens, place = np.zeros((TOKENS, WIDTH), np.float32), np.zeros((TOKENS, 3), np.float32)
        ids, ages = tuple(f"object{i}" for i in range(TOKENS)), np.zeros(TOKENS, np.float32)
        return messages.tokens_to_msg(MemoryTokens(now_ns, 1, tokens, ages, place, np.ones(TOKENS, bool), ids))

    def _verdict(self, now_ns: int) -> Any:
        verdict = Verdict(now_ns, self._episode, "memory", "denied", 0.1, 0.0, WHO)
        return messages.verdict_to_msg(verdict, self.robot_id)

    def _manifest(self, now_ns: int) -> Any:
        manifest = make_manifest(WEIGHTS, self._version, stage="approved")
        return messages.manifest_to_msg(manifest, now_ns, 1 << 16)

    def _transforms(self, now_ns: int) -> Any:
        pose = Pose(np.array([0.4, 0.1, 0.9]), np.array([0.0, 1.0, 0.0, 0.0]))
        frames = [messages.optical_frame(camera) for camera in self.robot.camera_names]
        return TFMessage(transforms=[messages.pose_to_transform(pose, frame, now_ns) for frame in frames])
