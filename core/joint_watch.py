"""Finds measurements of the joints that cannot be right: jumps that no motor makes, and sensors that stand still."""

from __future__ import annotations

import numpy as np

from engram.core.types import JointState

GAP_S = 0.25
"""Measurements further apart than this do not show how the arm moved between them [s]."""


class JointWatch:
    """Compares each measurement with all before it, at constant cost.

    A joint at q at time t lies within ``q +- velocity_max * (t' - t)`` at any later time t'. The watch keeps the
    intersection of these intervals over all measurements so far. A measurement further outside it than the slack
    allows cannot come from the same arm. Small jumps to and fro add up to no more than one slack, so that a second
    publisher is found whatever its rate.

    After a gap in the measurements any place would be near enough. An arm is then where it was, or on its way to its
    last command; what else happened meanwhile, a person has to confirm.

    Args:
        names: joint names, for the reason.
        speed: fastest motion of each joint (n,) rad/s.
        slack_s: time of fastest motion that is allowed on top [s]: stamps are not exact, and a joint that was blocked
            catches up.
    """

    def __init__(self, names: tuple[str, ...], speed: np.ndarray, slack_s: float) -> None:
        self._names, self._speed = names, speed
        self._slack = speed * slack_s
        self.forget()

    def forget(self) -> None:
        """Forget all measurements: the next one may be anywhere."""
        self._stamp_ns: int | None = None
        self._low = self._high = np.zeros(0)

    def begin(self, joints: JointState) -> None:
        """Forget all measurements but ``joints``."""
        self._stamp_ns, self._low, self._high = joints.stamp_ns, joints.positions, joints.positions

    def retime(self, stamp_ns: int, passed_s: float) -> None:
        """Go on with a measurement at ``stamp_ns``, ``passed_s`` after the last one: the clock was set in between."""
        if self._stamp_ns is not None:
            self._stamp_ns = stamp_ns - round(passed_s * 1e9)

    def jump(self, joints: JointState, commanded: np.ndarray | None = None) -> str:
        """Take in ``joints`` and return why no motor could have brought them there; empty = one could.

        A stamp that is not newer than the last one adds no time. ``commanded`` (n,) is the last command.
        """
        q = joints.positions
        if self._stamp_ns is None:
            self.begin(joints)
            return ""
        passed_s = max(0, joints.stamp_ns - self._stamp_ns) / 1e9
        low, high = self._reached(passed_s, commanded)
        beyond = np.maximum(low - q, q - high) - self._slack
        worst = int(np.argmax(beyond))
        if beyond[worst] > 0.0:
            further = beyond[worst] + self._slack[worst]
            can = "was commanded" if passed_s > GAP_S else "can move"
            return (
                f"{self._names[worst]} measured at {q[worst]:.3f}, {further:.3f} further than it {can} in the "
                f"{passed_s:.3f} s since the measurement before"
            )
        self._stamp_ns = max(joints.stamp_ns, self._stamp_ns)
        self._low, self._high = np.maximum(low, q), np.minimum(high, q)
        return ""

    def _reached(self, passed_s: float, commanded: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest and highest places (n,) where the joints may be ``passed_s`` after the last measurement."""
        if passed_s <= GAP_S:
            return self._low - self._speed * passed_s, self._high + self._speed * passed_s
        if commanded is None:
            return self._low, self._high
        return np.minimum(self._low, commanded), np.maximum(self._high, commanded)


class FrozenWatch:
    """Finds a joint whose measurement repeats itself while the joint is commanded away from it.

    The measurement of a joint that is driven changes, if only by noise. One that stays the same to the last bit comes
    from a sensor that hangs, from a motor without power, or from a joint that is blocked hard.

    Args:
        names: names of the arm's joints, for the reason.
        lead: a joint counts as commanded away beyond this distance of command and measurement (n,) rad.
        after_s: so long it may stay the same [s].
    """

    def __init__(self, names: tuple[str, ...], lead: np.ndarray, after_s: float) -> None:
        self._names, self._lead, self._after_ns = names, lead, round(after_s * 1e9)
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._since_ns = np.zeros(len(self._names), np.int64)  # since when each joint has stood still, driven
        self._last: np.ndarray | None = None

    def frozen(self, measured: np.ndarray, commanded: np.ndarray, stamp_ns: int) -> str:
        """Take in where the arm is measured and was commanded to be, (n,) rad each; return which joint stands still.

        Empty = none.
        """
        last, self._last = self._last, measured.copy()
        driven = np.abs(commanded - measured) > self._lead
        same = driven & (last == measured) if last is not None else np.zeros(len(measured), bool)
        self._since_ns[~same] = stamp_ns
        worst = int(np.argmin(self._since_ns))
        stood_ns = stamp_ns - int(self._since_ns[worst])
        if stood_ns < max(1, self._after_ns):
            return ""
        off = abs(commanded[worst] - measured[worst])
        return (
            f"{self._names[worst]} measured at {measured[worst]:.3f} without any change for {stood_ns / 1e9:.1f} s, "
            f"its command is {off:.3f} away"
        )
