"""Tells measurements of the joints that no motor could have made from those that one could."""

from __future__ import annotations

import numpy as np

from engram.core.types import JointState


class JointWatch:
    """Compares each measurement with all before it, at constant cost.

    A joint at q at time t lies within ``q +- velocity_max * (t' - t)`` at any later time t'. The watch keeps the
    intersection of these intervals over all measurements so far. A measurement further outside it than the slack
    allows cannot come from the same arm. Small jumps to and fro add up to no more than one slack, so that a second
    publisher is found whatever its rate.

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

    def jump(self, joints: JointState) -> str:
        """Take in ``joints`` and return why no motor could have brought them there; empty = one could.

        A stamp that is not newer than the last one adds no time.
        """
        q = joints.positions
        if self._stamp_ns is None:
            self._stamp_ns, self._low, self._high = joints.stamp_ns, q, q
            return ""
        passed_s = max(0, joints.stamp_ns - self._stamp_ns) / 1e9
        low, high = self._low - self._speed * passed_s, self._high + self._speed * passed_s
        beyond = np.maximum(low - q, q - high) - self._slack
        worst = int(np.argmax(beyond))
        if beyond[worst] > 0.0:
            further = beyond[worst] + self._slack[worst]
            return (
                f"{self._names[worst]} measured at {q[worst]:.3f}, {further:.3f} further than it can move in the "
                f"{passed_s:.3f} s since the measurement before"
            )
        self._stamp_ns = max(joints.stamp_ns, self._stamp_ns)
        self._low, self._high = np.maximum(low, q), np.minimum(high, q)
        return ""
