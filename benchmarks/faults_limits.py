"""What a robot may be told and may do: limits of a sequence of commands, and motions that nobody allowed. No ROS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engram.core.robot import RobotConfig

TOLERANCE = 1.001
"""Share of a limit that counts as keeping it: a command travels as numbers that were rounded."""
STILL_RAD = 0.03
"""A joint that moves less than this while no motion is allowed sags or settles."""
MEASURED_SHARE = 1.5
"""A servo overshoots: a measured joint may be so much faster than its limit."""


@dataclass(frozen=True)
class Violation:
    """One limit that one command or one motion did not keep."""

    kind: str  # not_finite, position, duration, velocity, acceleration, jerk, early, and what nobody allowed or can do
    text: str


class CommandJudge:
    """Checks a sequence of commands against position, velocity, acceleration and jerk, arm and gripper.

    A command's velocity is its distance from the command before over the control period. Where commands in between
    were missed, the whole distance counts over the whole time, and acceleration and jerk are not known.

    Args:
        robot: whose limits hold.
        control_dt_s: the control period [s].
        jerk_max: limits of the jerk (n,) rad/s^3 of the arm; None: jerk is not limited.
    """

    def __init__(self, robot: RobotConfig, control_dt_s: float, jerk_max: tuple[float, ...] | None = None) -> None:
        self.robot, self.dt = robot, control_dt_s
        self._low = np.array((*robot.position_min, min(robot.gripper_open, robot.gripper_closed)))
        self._high = np.array((*robot.position_max, max(robot.gripper_open, robot.gripper_closed)))
        self._speed = np.array((*robot.velocity_max, robot.gripper_velocity_max))
        self._acceleration = np.array((*robot.acceleration_max, np.inf))  # the gripper has a limit of speed alone
        self._jerk = np.array((*(jerk_max or (np.inf,) * len(robot.arm_joints)), np.inf))
        self.forget()

    def forget(self) -> None:
        """Forget the commands before, as where an episode begins and a simulated arm is put to its start."""
        self._stamp_ns: int | None = None
        self._before: np.ndarray = np.zeros(0)
        self._velocity: np.ndarray | None = None
        self._rate: np.ndarray | None = None

    def command(self, stamp_ns: int, positions: np.ndarray, duration_s: float) -> list[Violation]:
        """Take in a command for the control step at ``stamp_ns``; return the limits that it does not keep."""
        q = np.asarray(positions, np.float64)
        if q.shape != self._low.shape or not np.isfinite(q).all():
            return [Violation("not_finite", f"{q.tolist()}")]
        found = [self._over("position", np.maximum(self._low - q, q - self._high) - 1e-6, np.zeros(len(q)))]
        if not abs(duration_s - self.dt) <= 1e-6:
            found.append(Violation("duration", f"{duration_s} s, the control period is {self.dt} s"))
        if self._stamp_ns is not None and stamp_ns > self._stamp_ns:
            found += self._sequence(q, (stamp_ns - self._stamp_ns) / 1e9)
        if self._stamp_ns is None or stamp_ns < self._stamp_ns:  # the first, or the clock began anew
            self.forget()
        if stamp_ns != self._stamp_ns:  # else it is shown again
            self._stamp_ns, self._before = stamp_ns, q
        return [one for one in found if one is not None]

    def _sequence(self, q: np.ndarray, elapsed_s: float) -> list[Violation | None]:
        steps = max(1, round(elapsed_s / self.dt))
        velocity = (q - self._before) / (steps * self.dt)
        found = [self._over("velocity", np.abs(velocity), self._speed)]
        if elapsed_s < 0.9 * self.dt and np.abs(q - self._before).max() > 1e-9:  # a hold may be repeated
            found.append(Violation("early", f"{elapsed_s:.3f} s after the command before"))
        rate = None
        if steps == 1 and self._velocity is not None:
            rate = (velocity - self._velocity) / self.dt
            found.append(self._over("acceleration", np.abs(rate), self._acceleration))
            if self._rate is not None:
                found.append(self._over("jerk", np.abs(rate - self._rate) / self.dt, self._jerk))
        self._velocity, self._rate = (velocity if steps == 1 else None), rate
        return found

    def _over(self, kind: str, values: np.ndarray, limits: np.ndarray) -> Violation | None:
        beyond = values - limits * TOLERANCE
        worst = int(np.argmax(beyond))
        if beyond[worst] <= 0:
            return None
        name = self.robot.joint_names[worst]
        return Violation(kind, f"{name}: {values[worst]:.4g}, limit {limits[worst]:.4g}")


class MotionJudge:
    """Checks measured motions: no joint faster than a servo makes it, none while no motion is allowed."""

    def __init__(self, robot: RobotConfig) -> None:
        self.robot = robot
        self._speed = np.array(robot.velocity_max) * MEASURED_SHARE
        self._last: tuple[int, np.ndarray] | None = None
        self._still: np.ndarray | None = None

    def forget(self) -> None:
        """Forget where the arm was, as where an episode begins."""
        self._last = self._still = None

    def measured(self, stamp_ns: int, positions: np.ndarray, *, allowed: bool) -> list[Violation]:
        """Take in measured joints; ``allowed``: somebody let the arm move, now or so recently that it still brakes."""
        q, found = np.asarray(positions, np.float64)[: len(self._speed)], []
        if self._last is not None and stamp_ns > self._last[0]:
            velocity = np.abs(q - self._last[1]) / ((stamp_ns - self._last[0]) / 1e9)
            worst = int(np.argmax(velocity - self._speed))
            if velocity[worst] > self._speed[worst]:
                text = f"{self.robot.joint_names[worst]}: {velocity[worst]:.3g} rad/s"
                found.append(Violation("fast_motion", text))
        self._last = (stamp_ns, q)
        if allowed:
            self._still = None
            return found
        if self._still is None:
            self._still = q
        moved = np.abs(q - self._still)
        worst = int(np.argmax(moved))
        if moved[worst] > STILL_RAD:
            found.append(Violation("motion_not_allowed", f"{self.robot.joint_names[worst]}: {moved[worst]:.3f} rad"))
            self._still = q
        return found
