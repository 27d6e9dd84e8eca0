"""Position, velocity, acceleration and jerk limits of a sequence of joint commands.

The sequence's velocity is the difference of two commands over the control period; its acceleration and jerk are the
differences of velocity and acceleration. A command is taken only if the joint can still stop within its limits
afterwards. So there is always a next command that keeps all four limits, whatever is asked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from engram.core.errors import EngramError

_SEARCH = 24
"""The most steps of the search for the velocity that ends at the end of a joint's range."""
_NEAR = 1e-7
"""So near to the end of its range a joint has reached it [rad]."""
_LONGEST_STOP = 10_000
"""Steps after which a stop is given up; no robot needs as many."""
_REST = 1e-12
"""Slower than this is at rest [rad/s]."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The next command, and the state of motion that it leads to; (n,) each."""

    positions: np.ndarray  # rad
    velocity: np.ndarray  # rad/s
    acceleration: np.ndarray  # rad/s^2
    limited: tuple[str, ...] = ()
    """Which limits changed what was asked: velocity, acceleration (or jerk), position."""


@dataclass(frozen=True, slots=True)
class JointLimit:
    """Limits of one joint; every method is about velocities [rad/s] of its commands."""

    low: float  # rad
    high: float  # rad
    speed: float  # rad/s
    acceleration: float  # rad/s^2
    jerk: float  # rad/s^3; infinite = not limited
    dt: float  # s

    @property
    def longest_stop(self) -> float:
        """An upper bound of the way that a stop takes, from any state of motion [rad]."""
        turned = 0.0 if math.isinf(self.jerk) else 4.0 * self.acceleration / self.jerk
        return self.speed * (turned + self.speed / self.acceleration + 4.0 * self.dt)

    def up_to(self, v: float, a: float, limit: float) -> float:
        """Return the greatest next velocity after which the joint need not become faster than ``limit``.

        Args:
            v, a: velocity and acceleration of the command before.
            limit: greatest velocity, now and while the acceleration is brought back to zero.
        """
        dt, r = self.dt, self.jerk * self.dt  # r: how much the acceleration changes in one step
        room = (limit - v) / dt
        if room > 0.0 and math.isfinite(r):
            # With acceleration x now, the steps after it add x - r, x - 2r, ...: n of them are above zero.
            n = math.floor((math.sqrt(1.0 + 8.0 * room / r) - 1.0) / 2.0)
            room = (room + r * n * (n + 1) / 2.0) / (n + 1)
        return v + dt * max(min(room, self.acceleration, a + r), a - r, -self.acceleration)

    def down_to(self, v: float, a: float, limit: float) -> float:
        """Return the least next velocity after which the joint need not become slower than ``limit``."""
        return -self.up_to(-v, -a, -limit)

    def towards(self, v: float, a: float, wanted: float) -> float:
        """Return the next velocity nearest to ``wanted`` that approaches it without passing it."""
        return self.up_to(v, a, wanted) if wanted >= v else self.down_to(v, a, wanted)

    def before_end(self, p: float, v: float, a: float, wanted: float) -> float:
        """Return the velocity nearest to ``wanted`` from which the joint can stop at or below ``high``.

        Args:
            p, v, a: state of motion of the command before.
            wanted: a next velocity that keeps the limits of velocity, acceleration and jerk.
        """
        passed, beyond = wanted, self._peak(p, v, a, wanted)
        if beyond <= self.high:
            return wanted
        kept = self.down_to(v, a, -self.speed)
        short = self._peak(p, v, a, kept)
        for step in range(_SEARCH):
            if not short < self.high - _NEAR or passed - kept < _REST:
                break
            # The way to stop is a convex function of the velocity: the chord never goes too far.
            part = 0.5 if step % 3 == 2 else (self.high - short) / (beyond - short)
            tried = kept + part * (passed - kept)
            reached = self._peak(p, v, a, tried)
            if reached <= self.high:
                kept, short = tried, reached
            else:
                passed, beyond = tried, reached
        return kept

    def mirrored(self) -> JointLimit:
        """Return the limits of the joint that turns the other way round."""
        return JointLimit(-self.high, -self.low, self.speed, self.acceleration, self.jerk, self.dt)

    def _peak(self, p: float, v: float, a: float, first: float) -> float:
        """Return how far up the joint gets if it moves at ``first`` now and brakes as hard as it may afterwards."""
        dt = self.dt
        for _ in range(_LONGEST_STOP):
            a, v = (first - v) / dt, first
            p += v * dt
            first = self.down_to(v, a, -self.speed)
            if first <= 0.0:
                break
        return p


class MotionLimits:
    """The arm's commands so far, and the next one that its limits allow.

    Args:
        low, high: ends of each joint's range (n,) rad.
        speed, acceleration, jerk: limits (n,) rad/s, rad/s^2, rad/s^3.
        dt: control period [s].
    """

    def __init__(
        self,
        low: np.ndarray,
        high: np.ndarray,
        speed: np.ndarray,
        acceleration: np.ndarray,
        jerk: np.ndarray,
        dt: float,
    ) -> None:
        self.dt = dt
        self._low, self._high, self._speed = low, high, speed
        rows = zip(*(limit.tolist() for limit in (low, high, speed, acceleration, jerk)), strict=True)
        self._joints = [JointLimit(p, q, v, a, j, dt) for p, q, v, a, j in rows]
        self._mirrored = [joint.mirrored() for joint in self._joints]
        self._stops = [joint.longest_stop for joint in self._joints]
        self.last: Plan | None = None  # the command before

    def forget(self) -> None:
        """Forget all commands."""
        self.last = None

    def begin(self, positions: np.ndarray) -> None:
        """Begin at rest at ``positions`` (n,) rad, brought into the joints' ranges."""
        zero = np.zeros(len(positions))
        self.last = Plan(np.minimum(np.maximum(positions, self._low), self._high), zero, zero)

    def take(self, plan: Plan) -> None:
        """Note that ``plan`` is the command."""
        self.last = plan

    def towards(self, target: np.ndarray) -> Plan:
        """Return the command nearest to ``target`` (n,) rad; all joints slow down together, but for ends of range.

        From rest, or along the present motion, its direction is that of ``target``; in a turn it lies between the two.
        """
        last = self._last()
        asked = (target - last.positions) / self.dt
        wanted = slowed(asked, self._speed)
        limited = ["velocity"] if wanted is not asked else []
        reached, ends = self._reach(last, wanted)
        if not limited and not ends and np.abs(reached - wanted).max() <= _REST:
            return self._plan(last, target)
        velocity, together = self._together(last, wanted, reached)
        limited += ["acceleration"] * (not together) + ["position"] * ends
        return self._plan(last, last.positions + velocity * self.dt, tuple(limited))

    def stopping(self) -> Plan:
        """Return the command that brings the arm to rest soonest; at rest, the command before."""
        last = self._last()
        velocity = np.empty(len(self._joints))
        for i, (joint, v, a) in enumerate(self._moving(last)):
            velocity[i] = self._in_range(i, last, joint.towards(v, a, 0.0))
        velocity[np.abs(velocity) < _REST] = 0.0
        return self._plan(last, last.positions + velocity * self.dt)

    def rest(self, plan: Plan) -> np.ndarray:
        """Return where the arm (n,) rad comes to rest when it stops after ``plan``."""
        stops = self.stops(plan)
        return stops[-1] if stops else plan.positions

    def stops(self, plan: Plan) -> list[np.ndarray]:
        """Return the commands (n,) rad of an arm that stops after ``plan``; the last one is where it rests."""
        moving = self._moving(plan)
        steps: list[np.ndarray] = []
        position = plan.positions
        while any(abs(v) >= _REST for _, v, _ in moving) and len(steps) < _LONGEST_STOP:
            velocity = [joint.towards(v, a, 0.0) if abs(v) >= _REST else 0.0 for joint, v, a in moving]
            moving = [(joint, w, (w - v) / self.dt) for (joint, v, _), w in zip(moving, velocity, strict=True)]
            position = np.minimum(np.maximum(position + np.array(velocity) * self.dt, self._low), self._high)
            steps.append(position)
        return steps

    def _last(self) -> Plan:
        if self.last is None:
            raise EngramError("MotionLimits: no command yet: call begin first")
        return self.last

    def _moving(self, plan: Plan) -> list[tuple[JointLimit, float, float]]:
        return list(zip(self._joints, plan.velocity.tolist(), plan.acceleration.tolist(), strict=True))

    def _reach(self, last: Plan, wanted: np.ndarray) -> tuple[np.ndarray, bool]:
        """Return the velocity (n,) that each joint reaches by itself, and whether the end of a range changed one.

        ``wanted`` (n,) is cut in place for joints that come to the end of their range.
        """
        reached, ends = np.empty_like(wanted), False
        for i, (joint, v, a) in enumerate(self._moving(last)):
            asked = joint.towards(v, a, float(wanted[i]))
            reached[i] = self._before_ends(i, float(last.positions[i]), v, a, asked)
            if abs(reached[i] - asked) > _REST:
                wanted[i], ends = reached[i], True
        return reached, ends

    def _together(self, last: Plan, wanted: np.ndarray, reached: np.ndarray) -> tuple[np.ndarray, bool]:
        """Return the velocity (n,) on the way from the present one to ``wanted``, as far as every joint can go.

        Also tells whether that is the whole way.
        """
        base = np.array(
            [self._in_range(i, last, joint.towards(v, a, v)) for i, (joint, v, a) in enumerate(self._moving(last))]
        )
        missing = np.abs(wanted - base)
        parts = np.divide(np.abs(reached - base), missing, out=np.ones_like(missing), where=missing > _REST)
        part = min(1.0, float(parts.min()))
        if part >= 1.0 - 1e-9:
            return reached, True
        velocity = (base + part * (wanted - base)).tolist()
        return np.array([self._in_range(i, last, v) for i, v in enumerate(velocity)]), False

    def _in_range(self, i: int, last: Plan, velocity: float) -> float:
        """Return ``velocity`` of joint ``i``, brought to what its limits allow."""
        joint, v, a = self._joints[i], float(last.velocity[i]), float(last.acceleration[i])
        velocity = min(max(velocity, joint.down_to(v, a, -joint.speed)), joint.up_to(v, a, joint.speed))
        return self._before_ends(i, float(last.positions[i]), v, a, velocity)

    def _before_ends(self, i: int, p: float, v: float, a: float, velocity: float) -> float:
        """Return the velocity nearest to ``velocity`` from which joint ``i`` can stop within its range."""
        joint, stop = self._joints[i], self._stops[i]
        if p + stop > joint.high:
            velocity = joint.before_end(p, v, a, velocity)
        if p - stop < joint.low:
            velocity = -self._mirrored[i].before_end(-p, -v, -a, -velocity)
        return velocity

    def _plan(self, last: Plan, positions: np.ndarray, limited: tuple[str, ...] = ()) -> Plan:
        positions = np.minimum(np.maximum(positions, self._low), self._high)
        velocity = (positions - last.positions) / self.dt
        return Plan(positions, velocity, (velocity - last.velocity) / self.dt, limited)


def slowed(velocity: np.ndarray, speed: np.ndarray) -> np.ndarray:
    """Return ``velocity`` (n,) in its direction, as fast as ``speed`` (n,) > 0 lets every joint go [rad/s]."""
    excess = float((np.abs(velocity) / speed).max())
    return velocity if excess <= 1.0 else velocity / excess
