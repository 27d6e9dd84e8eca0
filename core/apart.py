"""Joins the limits of motion with the barrier: the next command stays clear of everything until the arm is at rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engram.core.contracts import MotionBarrier
from engram.core.motion_limits import MotionLimits, Plan

SAME = 0.02
"""A gripper within this share of its range is where it was told to be."""


class Apart:
    """Asks a barrier about commands.

    The gripper is looked at where it is told to be, and where it is measured: what it holds stops it, and it may be
    slower than its commands.

    Args:
        barrier: what knows the shapes.
        limits: the arm's commands so far.
        gripper_range: the whole way of the gripper [its units].
    """

    def __init__(self, barrier: MotionBarrier, limits: MotionLimits, gripper_range: float) -> None:
        self.barrier, self._limits, self._same = barrier, limits, SAME * abs(gripper_range)
        self.nearest = ""
        """What the last command was kept apart from, as ``one/other``; empty: nothing."""

    def kept(self, plan: Plan, last: float, gripper: float, measured: float) -> tuple[Plan, float] | None:
        """Return the arm's command and the gripper's that are nearest to what is wanted and touch nothing.

        What is wanted comes back itself where it is safe. None: nothing is; the arm then brakes on the way that was
        found safe together with its last command.

        Args:
            plan: the wanted next command of the arm.
            last: the gripper's last command.
            gripper: its wanted command.
            measured: where it is.
        """
        found = self._limit(plan, last, gripper)
        self.nearest = self.barrier.nearest
        if found is None or abs(measured - found[1]) <= self._same:
            return found
        elsewhere = self._limit(found[0], measured, measured)
        self.nearest = self.nearest or self.barrier.nearest
        if elsewhere is None or elsewhere[0] is found[0]:
            return None if elsewhere is None else found
        again = self._limit(elsewhere[0], last, found[1])
        return again if again is not None and again[0] is elsewhere[0] else None

    def _limit(self, plan: Plan, last: float, gripper: float) -> tuple[Plan, float] | None:
        assert self._limits.last is not None
        goal = np.append(plan.positions, gripper)

        def follow(asked: np.ndarray) -> Sequence[np.ndarray]:
            chosen = plan if asked is goal else self._limits.towards(asked[:-1])
            return [np.append(stop, asked[-1]) for stop in (chosen.positions, *self._limits.stops(chosen))]

        safe = self.barrier.limit(np.append(self._limits.last.positions, last), goal, follow)
        if safe is None:
            return None
        return (plan, gripper) if safe is goal else (self._limits.towards(safe[:-1]), float(safe[-1]))
