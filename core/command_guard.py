"""The last look at a joint command, in what talks to the hardware: limits and the latched stop, once more.

The safety node has shaped the command already. The guard shapes nothing: it lets a command through as it is, or refuses
it. So it costs no accuracy, and a second publisher, a replay or a fault in the safety node does not reach the motors.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from engram.core.pipeline import RESTED
from engram.core.robot import RobotConfig
from engram.core.types import JointCommand, JointState

AHEAD_S = 1.0
"""How far a command's stamp may be ahead of the clock [s]."""
SILENT_S = 1.0
"""After so long without a command, motion begins anew from where the arm is measured [s]."""
CLOCK_SET_S = 0.05
"""If the clock of stamps fell behind the receiver's own by so much between two commands, it was set back [s]."""
STEPS = 2.0
"""Control steps of motion that may come at once, because commands arrive early and late. One command leads so far only
where the one before it was lost."""
ASIDE = 0.25
"""Where motion begins anew, the arm may be measured by so much of the fastest step beside where the safety node saw it.
"""
EARLIEST = 0.9
"""Control periods after which the pipeline decides the next step at the earliest; what comes sooner is a repeat."""
BRAKES, SLOWS = 0.3, 0.1
"""Shares of a joint's acceleration: with which an arm is thought to brake, unless it is allowed less, as a robot begins
with that share of its limits; and by which it slows down at least in each step of braking. Where the jerk is limited,
the second is also the share of it with which an arm that was getting faster stops doing so."""
ROUNDING = 1e-6
"""Tolerance of comparisons [rad, m, and of durations relative]."""


@dataclass(frozen=True)
class _Gap:
    """What may lie between the last command and one that comes now."""

    start: np.ndarray
    """(n,) from where the motion of the command counts."""
    budget: np.ndarray
    """(n,) motion that is allowed now."""
    steps: int
    """Control steps at most, those of lost commands included; 0: motion begins anew."""
    rested: int
    """Control steps at most since the arm rested, and its motion may have begun anew; 0: it cannot have rested."""
    aside: np.ndarray
    """(k, n) how far from ``start`` are the places where it may have begun."""
    is_early: bool = False
    """The command is of the same control step as the last one."""


class CommandGuard:
    """Refuses commands that the safety node cannot have meant.

    Speed is checked as a budget: each second of the receiver's clock allows ``velocity_max`` of motion of the commanded
    position. Many small steps at once therefore gain nothing. Acceleration is checked from step to step: a control step
    differs from the one before by what the acceleration allows. A command that repeats the last one is let through, as
    it does what a refusal does.

    Attributes:
        counts: refused commands by kind of reason.
    """

    def __init__(
        self,
        robot: RobotConfig,
        control_dt_s: float,
        stale_after_s: float = math.inf,
        velocity_fraction: float = 1.0,
        acceleration_fraction: float = 1.0,
    ) -> None:
        """Take the limits of ``robot``; of those of its arm joints only the fractions are allowed."""
        self.counts: Counter[str] = Counter()
        self.stopped = False
        self._brakes = min(BRAKES, acceleration_fraction)
        self._names, self._dt_s, self._stale_after_s = robot.joint_names, control_dt_s, stale_after_s
        self._low = np.array((*robot.position_min, min(robot.gripper_open, robot.gripper_closed)))
        self._high = np.array((*robot.position_max, max(robot.gripper_open, robot.gripper_closed)))
        self._allowed = _share(velocity_fraction, "speed"), _share(acceleration_fraction, "acceleration")
        self._speed = np.array((*(velocity_fraction * np.array(robot.velocity_max)), robot.gripper_velocity_max))
        self._acceleration = np.array(robot.acceleration_max)  # (arm joints,), as the jerk
        self._longest = self._speed * control_dt_s  # (n,) motion of a control step
        faster = np.append(acceleration_fraction * self._acceleration * control_dt_s**2, np.inf)
        self._faster = np.minimum(faster, 2.0 * self._longest)  # (n,) by which it differs from the one before
        self._jerk = np.array(robot.jerk_max or (np.inf,) * len(robot.arm_joints))
        # who brakes goes on, and back no farther than where the jerk is limited and the arm was about to turn
        self._back = np.append(self._braking_way(self._acceleration**2 / self._jerk / 2.0), 0.0)
        self.forget()

    def forget(self) -> None:
        """Motion begins anew from where the arm is measured, as at the start of an episode; a stop stays."""
        self._commanded: np.ndarray | None = None  # (n,) last that was let through
        self._held: np.ndarray | None = None  # (n,) the first that was let through while stopped
        self._to_rest = np.zeros(len(self._speed))  # (n,) way that braking takes from there
        self._way = np.zeros(len(self._speed))  # (n,) its direction, -1 or 1
        self._step: np.ndarray = np.zeros(len(self._speed))  # (n,) motion of the last command
        self._gain: np.ndarray = np.zeros(len(self._speed))  # (n,) how much faster, in its direction, that was
        self._last = np.zeros((2, len(self._speed)))  # the least and greatest that the sender's last step may have been
        self._budget = np.zeros(len(self._speed))  # (n,) motion that is allowed now
        self._at_s = -math.inf
        self._ahead = 1.0  # control periods by which stamps may still run ahead of the receiver's clock
        self._stamp_ns = -1
        self._now_s = 0.0  # the clock of stamps, when the last was let through

    def stop(self, stopped: bool) -> None:
        """Take note of the safety node's latched stop: while it lasts, one position is held."""
        if stopped != self.stopped:
            self._held = None
        self.stopped = stopped

    def refusal(self, command: JointCommand, joints: JointState, at_s: float, age_s: float = 0.0) -> str:
        """Return why ``command`` is not executed; empty: it is.

        Args:
            command: for the robot's joints, in their order.
            joints: newest measured.
            at_s: time of the receiver's own clock, which never goes back [s].
            age_s: how long ago the command's step began [s]; negative: it lies in the future.
        """
        gap = self._gap(command.stamp_ns, joints.positions, at_s)
        kind, text = self._reason(command, joints.positions, gap, at_s, age_s)
        if kind:
            self.counts[kind] += 1
            return f"{kind}: {text}"
        motion = command.positions - gap.start
        if self.stopped:
            self._watch_braking(command.positions, motion[:-1])
        moved = (np.abs(motion) > ROUNDING) | (not self.stopped)  # when a stop comes the last command may be repeated
        self._gain = np.where(moved, self._gained(motion), self._gain)
        self._step = np.where(moved, motion, self._step)
        self._last = self._steps_of(motion, gap)
        self._budget, self._commanded = gap.budget - np.abs(motion), command.positions
        ran = (command.stamp_ns - self._stamp_ns) / 1e9 / self._dt_s - (at_s - self._at_s) / self._dt_s
        self._ahead = min(1.0, max(0.0, self._ahead - ran)) if gap.steps else 1.0
        self._at_s, self._stamp_ns, self._now_s = at_s, command.stamp_ns, command.stamp_ns / 1e9 + age_s
        return ""

    def _reason(
        self, command: JointCommand, measured: np.ndarray, gap: _Gap, at_s: float, age_s: float
    ) -> tuple[str, str]:
        """Return the kind of the first reason against ``command`` and its words; both empty: there is none."""
        target, motion = command.positions, command.positions - gap.start
        if command.names != self._names:
            return "joints", f"{', '.join(command.names)}, expected {', '.join(self._names)}"
        if not abs(command.duration_s - self._dt_s) <= ROUNDING * self._dt_s:
            return "duration", f"{command.duration_s:g} s, expected the control period of {self._dt_s:g} s"
        if not age_s <= self._stale_after_s:
            return "stale", f"{age_s:.2f} s old, not executed; at most {self._stale_after_s:g} s"
        if age_s < -AHEAD_S:
            return "future", f"{-age_s:.2f} s ahead of the clock, at most {AHEAD_S:g} s"
        before_last = command.stamp_ns < self._stamp_ns and at_s - self._at_s <= SILENT_S
        if before_last and not self._was_set_back(command.stamp_ns / 1e9 + age_s, at_s):
            return "replayed", f"{(self._stamp_ns - command.stamp_ns) / 1e9:.2f} s before the last one"
        outside = np.maximum(self._low - target, 0) + np.maximum(target - self._high, 0)
        outside_now = np.maximum(self._low - measured, 0) + np.maximum(measured - self._high, 0)
        if (excess := outside - np.maximum(outside_now, ROUNDING)).max() > 0:  # moving back in is allowed
            return "position", self._joint(excess, outside, "outside its limits")
        if (excess := np.abs(motion) - np.minimum(gap.budget, self._length(gap))).max() > ROUNDING:
            return "velocity", self._joint(excess, np.abs(motion), f"away, more than {self._allowed[0]} allows")
        if gap.is_early and command.stamp_ns > self._stamp_ns and np.abs(motion).max() > ROUNDING:
            return "early", "it comes before its control step, after others that came early"
        least, most = self._reach(gap)
        excess = np.maximum(least - motion, motion - most)
        if excess.max() > ROUNDING and not _is_repeat(motion):
            return "acceleration", self._joint(excess, np.abs(motion), f"away, more than {self._allowed[1]} allows")
        if self.stopped and self._held is not None:
            moved = target - self._held
            to_rest = np.where(moved * self._way >= 0.0, self._to_rest, np.minimum(self._to_rest, self._back))
            if (excess := np.abs(moved) - self._speed * self._dt_s - to_rest).max() > ROUNDING:
                return "stopped", self._joint(excess, np.abs(moved), "away while the stop is latched")
        return "", ""

    def _was_set_back(self, now_s: float, at_s: float) -> bool:
        """Tell whether the clock of stamps, ``now_s``, was set back since the last command: then none is replayed."""
        known = math.isfinite(self._stale_after_s)  # else ages are not told: stamps are of a simulation's clock
        return known and now_s - self._now_s < at_s - self._at_s - CLOCK_SET_S

    def _watch_braking(self, target: np.ndarray, motion: np.ndarray) -> None:
        """Note where the first command under a stop may lead; take that back from joints (n - 1,) that do not brake."""
        before, turned = np.abs(self._step[:-1]), motion * self._step[:-1] < 0.0
        if self._held is None:  # it may have been on its way when the stop came: it need not be slower
            self._held = target
            self._way[:-1] = np.sign(np.where(np.abs(motion) > ROUNDING, motion, self._step[:-1]))
            faster = self._acceleration * self._dt_s**2
            speed, most = np.where(turned, (np.minimum(np.abs(motion), faster), faster), (before, before + faster))
            way = self._braking_way(speed / self._dt_s)
            self._to_rest[:-1] = np.where(np.abs(motion) > most + ROUNDING, 0.0, way)
            return
        gain = self._gain[:-1] - SLOWS * self._jerk * self._dt_s**3
        gain = np.maximum(gain, -SLOWS * self._acceleration * self._dt_s**2)
        beyond = self._acceleration**2 / self._jerk * self._dt_s  # a brake goes beyond rest where the jerk is limited
        most = np.where(turned, beyond, np.maximum(before + gain, 0.0))
        self._to_rest[:-1][np.abs(motion) > most + ROUNDING] = 0.0

    def _gained(self, motion: np.ndarray) -> np.ndarray:
        """Return how much faster ``motion`` (n,) is than the one before, at most by what the acceleration allows."""
        gain = np.sign(motion) * (motion - self._step)
        return np.minimum(gain, np.append(self._acceleration * self._dt_s**2, np.inf))

    def _braking_way(self, speed: np.ndarray) -> np.ndarray:
        """Return how far the arm's joints go at most (n - 1,) until they rest; not at all where ``speed`` is zero."""
        peak = np.minimum(speed + self._acceleration**2 / self._jerk, self._speed[:-1])  # it may just get faster
        way = peak * (
            peak / (2 * self._brakes * self._acceleration) + 2 * self._acceleration / self._jerk + 2 * self._dt_s
        )
        return np.where(speed > ROUNDING, way, 0.0)

    def _gap(self, stamp_ns: int, measured: np.ndarray, at_s: float) -> _Gap:
        """Return what may lie between the last command and one of ``stamp_ns`` that comes ``at_s``."""
        inside = np.clip(measured, self._low, self._high)  # there motion begins where the arm is outside its limits
        if self._commanded is None or at_s - self._at_s > SILENT_S:
            aside = np.array((measured, inside)) - measured
            return _Gap(measured, STEPS * self._longest, 0, 1, aside)
        passed = max(0.0, at_s - self._at_s)
        # stamps tell how many steps were lost on the way, and the receiver's clock that they are not made up
        periods = min((stamp_ns - self._stamp_ns) / 1e9 / self._dt_s, passed / self._dt_s + self._ahead)
        steps = max(1, int(periods / EARLIEST + ROUNDING))
        may_rest = max(self._last[0, :-1].max(), -self._last[1, :-1].min()) <= ROUNDING
        rested = steps if may_rest else 0
        if periods > RESTED and self._last[:, :-1].any():  # it may have come to rest meanwhile
            rested = int((periods - RESTED) / EARLIEST) + 1
        aside = np.array((self._commanded, measured, inside)) - self._commanded
        budget = np.minimum(STEPS * self._longest, self._budget + self._speed * passed)
        return _Gap(self._commanded, budget, steps, rested, aside, is_early=periods < EARLIEST - ROUNDING)

    def _length(self, gap: _Gap) -> np.ndarray:
        """Return how far (n,) one command may lead."""
        anew = np.abs(gap.aside).max(axis=0) + (1.0 + ASIDE) * self._longest if gap.rested else 0.0
        return np.minimum(np.maximum(min(gap.steps, STEPS) * self._longest, anew), STEPS * self._longest)

    def _reach(self, gap: _Gap) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and the greatest motion (n,) that the acceleration allows after ``gap``."""
        if not gap.steps:  # whoever sends may be on the way already, as when the first command was lost
            return -self._length(gap), self._length(gap)
        least, most = -self._way_of(-self._last[0], gap.steps), self._way_of(self._last[1], gap.steps)
        if gap.rested:
            way = self._way_of(np.zeros_like(most), gap.rested) + ASIDE * self._longest
            least = np.minimum(least, gap.aside.min(axis=0) - way)
            most = np.maximum(most, gap.aside.max(axis=0) + way)
        return least, most

    def _way_of(self, step: np.ndarray, steps: int) -> np.ndarray:
        """Return how far (n,) ``steps`` control steps lead at most that follow one of ``step`` (n,)."""
        faster = step + self._faster * np.arange(1, steps + 1)[:, None]
        return np.minimum(faster, self._longest).sum(axis=0)

    def _steps_of(self, motion: np.ndarray, gap: _Gap) -> np.ndarray:
        """Return the least and the greatest step (2, n) that ``motion`` (n,) after ``gap`` may have ended with."""
        if _is_repeat(motion):
            least, most = self._reach(gap)
            rests = not gap.is_early and max(least[:-1].max(), -most[:-1].min()) <= ROUNDING
            slowest = np.array((np.minimum(self._last[0], 0.0), np.maximum(self._last[1], 0.0)))
            return np.zeros_like(slowest) if rests else slowest
        if not gap.steps:
            ends = [np.minimum(motion, 0.0) - self._faster, np.maximum(motion, 0.0) + self._faster]
            return np.clip(ends, -self._longest, self._longest)
        ends = []
        for steps in (1, gap.steps):  # what was one step, or several, ended at most so far from their average
            spread = self._faster * (steps - 1) / 2.0
            ends += [motion / steps - spread, motion / steps + spread]
        fastest = np.minimum(gap.rested * self._faster, self._longest)
        if gap.rested and gap.steps > 1:  # from a place that a lost command may have led to
            ends += [-fastest, fastest]
        elif gap.rested:
            near, far = gap.aside.min(axis=0) - ASIDE * self._longest, gap.aside.max(axis=0) + ASIDE * self._longest
            ends += [np.clip(motion - far, -fastest, fastest), np.clip(motion - near, -fastest, fastest)]
        return np.clip((np.min(ends, axis=0), np.max(ends, axis=0)), -self._longest, self._longest)

    def _joint(self, excess: np.ndarray, values: np.ndarray, words: str) -> str:
        worst = int(np.argmax(excess))
        return f"{self._names[worst]} {values[worst]:.3f} {words}"


def _share(fraction: float, of: str) -> str:
    return f"its {of}" if fraction == 1.0 else f"{fraction:g} of its {of}"


def _is_repeat(motion: np.ndarray) -> bool:
    """Tell whether ``motion`` (n,) leaves the arm where it was sent last."""
    return bool(np.abs(motion[:-1]).max() <= ROUNDING)
