"""The last filter before the actuators: limits, staleness, finiteness and a latched stop.

The filter does not trust its input. It keeps position, velocity and acceleration within the robot's limits, rejects
non-finite values, holds when commands are stale, and holds until reset once stopped.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from engram.core.contracts import Kinematics
from engram.core.robot import RobotConfig
from engram.core.types import JointCommand, JointState


@dataclass(frozen=True)
class SafetyConfig:
    """How strict the filter is."""

    stale_after_s: float = 0.5
    """A command for a step that began longer ago than this is not executed; the robot holds [s]."""
    velocity_fraction: float = 1.0
    """Share of the robot's velocity limits that may be used (0..1]."""
    acceleration_fraction: float = 1.0
    """Share of the robot's acceleration limits that may be used (0..1]."""
    workspace_margin_m: float = 0.02
    """How far outside the workspace box the tool may be commanded before the command is rejected [m]."""


class SafetyFilter:
    """Turns any requested joint command into one that is safe to execute. Counts every intervention."""

    def __init__(self, robot: RobotConfig, kinematics: Kinematics, config: SafetyConfig | None = None) -> None:
        self.robot = robot
        self.kinematics = kinematics
        self.config = config or SafetyConfig()
        self.counts: Counter[str] = Counter()
        self.stopped = ""  # reason of the latched stop; empty = running
        self._velocity: np.ndarray | None = None  # (n,) of the last command, for the acceleration limit
        self._hold: np.ndarray | None = None  # (n,) joint positions to hold while nothing else is let through
        self._low = np.array((*robot.position_min, min(robot.gripper_open, robot.gripper_closed)))
        self._high = np.array((*robot.position_max, max(robot.gripper_open, robot.gripper_closed)))
        self._speed = np.array(robot.velocity_max) * self.config.velocity_fraction
        self._acceleration = np.array(robot.acceleration_max) * self.config.acceleration_fraction
        margin = self.config.workspace_margin_m
        self._workspace = np.subtract(robot.workspace_min, margin), np.add(robot.workspace_max, margin)  # (3,) m each

    def stop(self, reason: str) -> None:
        """Latch: every later command becomes a hold until :meth:`reset`."""
        self.stopped = reason or "stop requested"

    def reset(self) -> None:
        """Release a latched stop and forget the previous command."""
        self.stopped = ""
        self.forget()

    def forget(self) -> None:
        """Forget the previous command, as at the start of an episode; a latched stop stays latched."""
        self._velocity = None
        self._hold = None

    def hold(self, joints: JointState, reason: str, duration_s: float) -> JointCommand:
        """Return a command that holds the current position. The position is stored once, so that the command does
        not follow a sagging arm down."""
        if self._hold is None:
            self._hold = joints.positions.copy()
        self._velocity = np.zeros(len(self._hold))
        self.counts[reason] += 1
        return JointCommand(joints.stamp_ns, self.robot.joint_names, self._hold, duration_s, held=reason)

    def filter(
        self, positions: np.ndarray | None, joints: JointState, duration_s: float, age_s: float = 0.0
    ) -> JointCommand:
        """Return a safe command for the control step that begins at ``joints.stamp_ns``.

        Args:
            positions: requested joint targets (n,), or None when nobody asked for anything.
            joints: measured state now.
            duration_s: time in which the targets shall be reached [s].
            age_s: how old the request is [s].
        """
        reason = self._refusal(positions, age_s)
        if reason:
            return self.hold(joints, reason, duration_s)
        assert positions is not None
        safe = self._limit(np.asarray(positions, np.float64), joints, duration_s)
        tool = self.kinematics.forward(safe[: len(self.robot.arm_joints)]).position
        low, high = self._workspace
        here = self.kinematics.forward(joints.positions[: len(self.robot.arm_joints)]).position
        outside_now = np.maximum(low - here, 0) + np.maximum(here - high, 0)
        outside_then = np.maximum(low - tool, 0) + np.maximum(tool - high, 0)
        if (outside_then > outside_now + 1e-9).any():  # moving back in is always allowed
            return self.hold(joints, "workspace", duration_s)
        self._hold = None
        return JointCommand(joints.stamp_ns, self.robot.joint_names, safe, duration_s)

    def _refusal(self, positions: np.ndarray | None, age_s: float) -> str:
        if self.stopped:
            return "stopped"
        if positions is None:
            return "no_command"
        if np.shape(positions) != (len(self.robot.joint_names),):
            return "wrong_shape"
        if not np.isfinite(positions).all():
            return "non_finite"
        if not age_s <= self.config.stale_after_s:
            return "stale"
        return ""

    def _limit(self, wanted: np.ndarray, joints: JointState, duration_s: float) -> np.ndarray:
        """Bring to position, velocity and acceleration limits, counting each kind that bit; arm (n,) and gripper.

        All arm joints slow down together, so that the tool keeps its direction. The gripper is limited by its speed
        alone.
        """
        gripper_speed = self.robot.gripper_velocity_max
        clipped = np.minimum(np.maximum(wanted, self._low), self._high)
        self._count("position_limited", clipped, wanted)
        velocity = (clipped - joints.positions) / duration_s
        step = self._acceleration * duration_s
        previous = joints.velocities if self._velocity is None else self._velocity
        arm = _slowed(velocity[:-1], self._speed)
        gripper = min(max(float(velocity[-1]), -gripper_speed), gripper_speed)
        self._count("velocity_limited", np.append(arm, gripper), velocity)
        smooth = _reachable(arm, previous[:-1], step)
        self._count("acceleration_limited", smooth, arm)
        self._velocity = np.append(_slowed(smooth, self._speed), gripper)
        return np.minimum(np.maximum(joints.positions + self._velocity * duration_s, self._low), self._high)

    def _count(self, limit: str, kept: np.ndarray, asked: np.ndarray) -> None:
        if np.abs(kept - asked).max() > 1e-9:
            self.counts[limit] += 1


def _slowed(velocity: np.ndarray, speed: np.ndarray) -> np.ndarray:
    """Return ``velocity`` (n,) in its direction, as fast as ``speed`` (n,) > 0 lets every joint go [rad/s]."""
    excess = float((np.abs(velocity) / speed).max())
    return velocity if excess <= 1.0 else velocity / excess


def _reachable(wanted: np.ndarray, previous: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Return the velocity (n,) nearest to ``wanted`` on the straight line from ``previous`` that ``step`` (n,) allows.

    From rest, or along the present motion, its direction is that of ``wanted``; in a turn it lies between the two.
    """
    excess = float((np.abs(wanted - previous) / step).max())
    return wanted if excess <= 1.0 else previous + (wanted - previous) / excess
