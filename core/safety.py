"""The last filter before the actuators: limits, staleness, finiteness and a latched stop.

The filter trusts neither the request nor the measurement. The sequence of its commands keeps position, velocity,
acceleration and jerk within the robot's limits, whatever is requested and whatever is measured. It rejects values that
are not finite, holds when requests are stale, and holds until reset once stopped. A hold brakes to the last command and
stays there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from engram.core.apart import Apart
from engram.core.contracts import Kinematics, MotionBarrier
from engram.core.errors import InvalidInputError
from engram.core.joint_watch import FrozenWatch
from engram.core.motion_limits import MotionLimits, Plan, slowed
from engram.core.robot import RobotConfig
from engram.core.types import JointCommand, JointState


@dataclass(frozen=True)
class SafetyConfig:
    """How strict the filter is."""

    stale_after_s: float = 0.5
    """A command for a step that began longer ago than this is not executed; the robot holds [s]."""
    ahead_s: float = 0.25
    """So far may joint states be ahead of this machine's clock; beyond it the robot holds [s]."""
    velocity_fraction: float = 1.0
    """Share of the robot's velocity limits that may be used (0..1]."""
    acceleration_fraction: float = 1.0
    """Share of the robot's acceleration limits that may be used (0..1]."""
    jerk_fraction: float = 1.0
    """Share of the robot's jerk limits that may be used (0..1]."""
    workspace_margin_m: float = 0.02
    """How far outside the workspace box the tool may be commanded before the command is rejected [m]."""
    slack_s: float = 0.05
    """A joint may be measured as far from the measurements before as its fastest motion takes it in the time between,
    and in this time on top; beyond it the robot stops: see JointWatch in core/joint_watch.py [s]."""
    frozen_after_s: float = 0.5
    """A joint that is commanded away from where it is measured, by more than half of its fastest motion in a control
    step, may be measured without any change for so long; then the robot stops [s]."""
    takeover_rad: float = 0.5
    """A person who leads the joints takes over only while each target lies so near to where its joint is, so that the
    arm does not sweep to where the leader lies [rad, m for a prismatic joint]."""

    def __post_init__(self) -> None:
        for name in ("velocity_fraction", "acceleration_fraction", "jerk_fraction"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise InvalidInputError(f"SafetyConfig.{name}: {getattr(self, name)}, expected above 0, at most 1")
        for name in ("stale_after_s", "ahead_s", "workspace_margin_m", "slack_s", "frozen_after_s", "takeover_rad"):
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise InvalidInputError(f"SafetyConfig.{name}: {getattr(self, name)}, expected a number of at least 0")


RESTS = 1e-6
"""An arm whose command is slower than this rests [rad/s]."""
MOST_COUNTS = 200
"""Kinds of interventions that are counted apart."""


class SafetyFilter:
    """Turns any requested joint command into one that is safe to execute. Counts every intervention."""

    def __init__(
        self,
        robot: RobotConfig,
        kinematics: Kinematics,
        config: SafetyConfig | None = None,
        control_dt_s: float = 0.1,
        barrier: MotionBarrier | None = None,
    ) -> None:
        self.robot = robot
        self.kinematics = kinematics
        self.config = config or SafetyConfig()
        self.control_dt_s = control_dt_s
        self.barrier = barrier
        self.counts: Counter[str] = Counter()
        self.stopped = ""  # reason of the latched stop; empty = running
        self._low = np.array((*robot.position_min, min(robot.gripper_open, robot.gripper_closed)))
        self._high = np.array((*robot.position_max, max(robot.gripper_open, robot.gripper_closed)))
        self._speed = np.array(robot.velocity_max) * self.config.velocity_fraction
        self._acceleration = np.array(robot.acceleration_max) * self.config.acceleration_fraction
        jerk = np.array(robot.jerk_max or (np.inf,) * len(robot.arm_joints)) * self.config.jerk_fraction
        self._arm = MotionLimits(
            self._low[:-1], self._high[:-1], self._speed, self._acceleration, jerk, self.control_dt_s
        )
        self._gripper: float | None = None  # position of the gripper's last command
        lead = 0.5 * self._speed * self.control_dt_s
        self._frozen = FrozenWatch(robot.arm_joints, lead, self.config.frozen_after_s)
        margin = self.config.workspace_margin_m
        self._workspace = np.subtract(robot.workspace_min, margin), np.add(robot.workspace_max, margin)  # (3,) m each

    @property
    def last(self) -> np.ndarray | None:
        """The last command (n,), arm and gripper; None before the first."""
        if self._arm.last is None or self._gripper is None:
            return None
        return np.append(self._arm.last.positions, self._gripper)

    @property
    def state(self) -> np.ndarray | None:
        """The state of motion (3n + 1,) that the last command leads to; None before the first.

        Position, velocity and acceleration of the n arm joints, then the position of the gripper.
        """
        last = self._arm.last
        if last is None or self._gripper is None:
            return None
        return np.concatenate((last.positions, last.velocity, last.acceleration, [self._gripper]))

    @property
    def moves(self) -> bool:
        """Whether the last command was one of motion."""
        return self._arm.last is not None and bool(np.abs(self._arm.last.velocity).max() > RESTS)

    def stop(self, reason: str) -> None:
        """Latch: every later command becomes a hold until :meth:`reset`."""
        self.stopped = reason or "stop requested"

    def reset(self) -> None:
        """Release a latched stop. Motion goes on from the last command."""
        self.stopped = ""
        self._frozen.forget()

    def forget(self) -> None:
        """Forget the last command, as at the start of an episode; a latched stop stays latched."""
        self._arm.forget()
        self._frozen.forget()
        self._gripper = None

    def resume(self, state: np.ndarray) -> None:
        """Go on from the last command of another filter of this robot, whose :attr:`state` (3n + 1,) it led to."""
        positions, velocity, acceleration = state[:-1].reshape(3, -1)
        self._arm.take(Plan(positions, velocity, acceleration))
        self._gripper = float(state[-1])

    def retime(self) -> None:
        """Note that the clock was set: what was measured before says nothing of the time that passed since."""
        self._frozen.forget()

    def rest(self) -> None:
        """Note that no command came for so long that the arm came to rest at the last one."""
        if self._arm.last is not None:
            self._arm.begin(self._arm.last.positions)

    def hold(self, joints: JointState, reason: str) -> JointCommand:
        """Return a command that brakes to rest and then repeats itself: it follows no measurement.

        Without a command before, the robot is held where it is measured, within its limits. While the cell holds the
        arm and moves it itself, the command goes along within the limits, so that it is there when the arm is let go.
        """
        self._begin(joints)
        if joints.held:
            plan, self._gripper = self._limit(joints.positions, joints)
        else:
            plan = self._arm.stopping()
        self._arm.take(plan)
        return self._held(joints, reason)

    def repeat(self, joints: JointState, reason: str) -> JointCommand:
        """Return the last command once more: the hold for a control step that has its answer already."""
        self._begin(joints)
        return self._held(joints, reason)

    def _held(self, joints: JointState, reason: str) -> JointCommand:
        self.counts[reason] += 1
        assert self.last is not None
        return JointCommand(joints.stamp_ns, self.robot.joint_names, self.last, self.control_dt_s, held=reason)

    def filter(
        self, positions: np.ndarray | None, joints: JointState, duration_s: float, age_s: float = 0.0
    ) -> JointCommand:
        """Return a safe command for the control step that begins at ``joints.stamp_ns``.

        Args:
            positions: requested joint targets (n,), or None when nobody asked for anything.
            joints: measured state now.
            duration_s: time in which the targets shall be reached: the control period [s].
            age_s: how old the request is [s].
        """
        reason = self._refusal(positions, duration_s, age_s)
        if reason:
            return self.hold(joints, reason)
        assert positions is not None
        self._begin(joints)
        kept = self._kept_apart(*self._limit(np.asarray(positions, np.float64), joints), float(joints.positions[-1]))
        if kept is None:
            return self.hold(joints, "collision")
        arm, gripper = kept
        if self._leaves_workspace(arm):
            return self.hold(joints, "workspace")
        self._arm.take(arm)
        self._gripper = gripper
        return JointCommand(
            joints.stamp_ns, self.robot.joint_names, np.append(arm.positions, gripper), self.control_dt_s
        )

    def lag(self, joints: JointState) -> str:
        """Return why the arm cannot be following its commands; empty = it may be.

        An arm that follows is at most as far from its last command as it moves in one control period, the slack and
        the time it takes to stop. The gripper is not looked at: what it holds stops it.
        """
        if self._arm.last is None:
            return ""
        off = np.abs(joints.positions[:-1] - self._arm.last.positions)
        allowed_s = self.control_dt_s + self.config.slack_s + self._speed / (2.0 * self._acceleration)
        worst = int(np.argmax(off - self._speed * allowed_s))
        if off[worst] <= self._speed[worst] * allowed_s[worst]:
            return ""
        return f"{self.robot.arm_joints[worst]} measured {off[worst]:.3f} away from its last command"

    def frozen(self, joints: JointState) -> str:
        """Return which joint is measured without any change although it is commanded away; empty = none.

        Call it once for each control step that is commanded.
        """
        if self._arm.last is None or joints.held:
            self._frozen.forget()
            return ""
        return self._frozen.frozen(joints.positions[:-1], self._arm.last.positions, joints.stamp_ns)

    def _begin(self, joints: JointState) -> None:
        """Take the measurement for the last command if there is none."""
        if self._arm.last is None:
            self._arm.begin(joints.positions[:-1])
        if self._gripper is None:
            self._gripper = float(np.clip(joints.positions[-1], self._low[-1], self._high[-1]))

    def _refusal(self, positions: np.ndarray | None, duration_s: float, age_s: float) -> str:
        if self.stopped:
            return "stopped"
        if positions is None:
            return "no_command"
        if np.shape(positions) != (len(self.robot.joint_names),):
            return "wrong_shape"
        if not np.isfinite(positions).all():
            return "non_finite"
        if not abs(duration_s - self.control_dt_s) <= 1e-6 * self.control_dt_s:
            return "wrong_duration"
        if not age_s <= self.config.stale_after_s:
            return "stale"
        if age_s < -self.config.ahead_s:
            return "future"
        return ""

    def _limit(self, wanted: np.ndarray, joints: JointState) -> tuple[Plan, float]:
        """Bring to all limits, counting each kind that bit; returns the arm's command and the gripper's.

        Velocities count from the measurement as well as from the last command: an arm that is blocked is not led away.
        The gripper is limited by its speed alone.
        """
        dt, here, speed = self.control_dt_s, joints.positions, self.robot.gripper_velocity_max * self.control_dt_s
        clipped = np.minimum(np.maximum(wanted, self._low), self._high)
        velocity = (clipped - here) / dt
        allowed = slowed(velocity[:-1], self._speed)
        plan = self._arm.towards(here[:-1] + allowed * dt)
        assert self._gripper is not None
        near = min(max(float(clipped[-1]), float(here[-1]) - speed), float(here[-1]) + speed)
        gripper = min(max(near, self._gripper - speed), self._gripper + speed)
        gripper = min(max(gripper, float(self._low[-1])), float(self._high[-1]))
        limits = set(plan.limited)
        if _differ(clipped, wanted):
            limits.add("position")
        if _differ(allowed, velocity[:-1]) or _differ(gripper, clipped[-1]):
            limits.add("velocity")
        self.counts.update(f"{limit}_limited" for limit in limits)
        return plan, gripper

    def _kept_apart(self, plan: Plan, gripper: float, measured: float) -> tuple[Plan, float] | None:
        """Return the command nearest to ``plan`` and ``gripper`` that touches nothing, counting what was near."""
        if self.barrier is None:
            return plan, gripper
        assert self._gripper is not None
        apart = Apart(self.barrier, self._arm, self.robot.gripper_closed - self.robot.gripper_open)
        kept = apart.kept(plan, self._gripper, gripper, measured)
        if apart.nearest:
            name = f"near {apart.nearest}"
            known = name in self.counts or len(self.counts) < MOST_COUNTS  # of the memory's things there is no end
            self.counts[name if known else "near other things"] += 1
            self.counts["collision_limited"] += kept is not None
        return kept

    def _leaves_workspace(self, plan: Plan) -> bool:
        """Tell whether the tool, now or when it stops after ``plan``, is further outside than at the last command."""
        assert self._arm.last is not None
        now = self._outside(self._arm.last.positions)
        return any(
            (self._outside(arm) > now + 1e-9).any()  # moving back in is always allowed
            for arm in (plan.positions, self._arm.rest(plan))
        )

    def _outside(self, arm: np.ndarray) -> np.ndarray:
        """Return how far the tool is outside the workspace (3,) m for arm joints (n,)."""
        tool, (low, high) = self.kinematics.forward(arm).position, self._workspace
        return np.maximum(low - tool, 0) + np.maximum(tool - high, 0)


def _differ(kept: np.ndarray | float, asked: np.ndarray | float) -> bool:
    return float(np.abs(np.subtract(kept, asked)).max()) > 1e-9
