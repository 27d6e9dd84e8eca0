"""The last look at a joint command, in what talks to the hardware: limits and the latched stop, once more.

The safety node has shaped the command already. The guard shapes nothing: it lets a command through as it is, or refuses
it. So it costs no accuracy, and a second publisher, a replay or a fault in the safety node does not reach the motors.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from engram.core.robot import RobotConfig
from engram.core.types import JointCommand, JointState

AHEAD_S = 1.0
"""How far a command's stamp may be ahead of the clock [s]."""
SILENT_S = 1.0
"""After so long without a command, motion begins anew from where the arm is measured [s]."""
CLOCK_SET_S = 0.05
"""If the clock of stamps fell behind the receiver's own by so much between two commands, it was set back [s]."""
STEPS = 2.0
"""Control steps of motion that may come at once, because commands arrive early and late."""
BRAKES, SLOWS = 0.3, 0.1
"""Shares of a joint's acceleration: with which an arm is thought to brake, as a robot begins with that share of its
limits; and by which it slows down at least in each step of braking. Where the jerk is limited, the second is also the
share of it with which an arm that was getting faster stops doing so."""
ROUNDING = 1e-6
"""Tolerance of comparisons [rad, m, and of durations relative]."""


class CommandGuard:
    """Refuses commands that the safety node cannot have meant.

    Speed is checked as a budget: each second of the receiver's clock allows ``velocity_max`` of motion of the commanded
    position. Many small steps at once therefore gain nothing.

    Attributes:
        counts: refused commands by kind of reason.
    """

    def __init__(
        self, robot: RobotConfig, control_dt_s: float, stale_after_s: float = math.inf, velocity_fraction: float = 1.0
    ) -> None:
        """Take the limits of ``robot``; of the speed of its arm joints only ``velocity_fraction`` is allowed."""
        self.counts: Counter[str] = Counter()
        self.stopped = False
        self._names, self._dt_s, self._stale_after_s = robot.joint_names, control_dt_s, stale_after_s
        self._low = np.array((*robot.position_min, min(robot.gripper_open, robot.gripper_closed)))
        self._high = np.array((*robot.position_max, max(robot.gripper_open, robot.gripper_closed)))
        self._allowed = "its speed" if velocity_fraction == 1.0 else f"{velocity_fraction:g} of its speed"
        self._speed = np.array((*(velocity_fraction * np.array(robot.velocity_max)), robot.gripper_velocity_max))
        self._acceleration = np.array(robot.acceleration_max)  # (arm joints,), as the jerk
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
        self._budget = np.zeros(len(self._speed))  # (n,) motion that is allowed now
        self._at_s = -math.inf
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
        budget = self._refilled(joints.positions, at_s)
        kind, text = self._reason(command, joints.positions, budget, at_s, age_s)
        if kind:
            self.counts[kind] += 1
            return f"{kind}: {text}"
        motion = command.positions - self._start(joints.positions, at_s)
        if self.stopped:
            self._watch_braking(command.positions, motion[:-1])
        moved = (np.abs(motion) > ROUNDING) | (not self.stopped)  # when a stop comes the last command may be repeated
        self._gain = np.where(moved, self._gained(motion), self._gain)
        self._step = np.where(moved, motion, self._step)
        self._budget, self._commanded = budget - np.abs(motion), command.positions
        self._at_s, self._stamp_ns, self._now_s = at_s, command.stamp_ns, command.stamp_ns / 1e9 + age_s
        return ""

    def _reason(
        self, command: JointCommand, measured: np.ndarray, budget: np.ndarray, at_s: float, age_s: float
    ) -> tuple[str, str]:
        """Return the kind of the first reason against ``command`` and its words; both empty: there is none."""
        target, start = command.positions, self._start(measured, at_s)
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
        if (excess := np.abs(target - start) - budget).max() > ROUNDING:
            return "velocity", self._joint(excess, np.abs(target - start), f"away, more than {self._allowed} allows")
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
        way = peak * (peak / (2 * BRAKES * self._acceleration) + 2 * self._acceleration / self._jerk + 2 * self._dt_s)
        return np.where(speed > ROUNDING, way, 0.0)

    def _start(self, measured: np.ndarray, at_s: float) -> np.ndarray:
        """Return (n,) from where the motion of a command counts."""
        anew = self._commanded is None or at_s - self._at_s > SILENT_S
        return measured if anew or self._commanded is None else self._commanded

    def _refilled(self, measured: np.ndarray, at_s: float) -> np.ndarray:
        full = STEPS * self._speed * self._dt_s
        if self._start(measured, at_s) is measured:
            return full
        return np.minimum(full, self._budget + self._speed * max(0.0, at_s - self._at_s))

    def _joint(self, excess: np.ndarray, values: np.ndarray, words: str) -> str:
        worst = int(np.argmax(excess))
        return f"{self._names[worst]} {values[worst]:.3f} {words}"
