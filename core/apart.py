"""Joins the limits of motion with the barrier: the next command stays clear of everything until the arm is at rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engram.core.contracts import MotionBarrier
from engram.core.motion_limits import MotionLimits, Plan


def kept_apart(
    barrier: MotionBarrier, limits: MotionLimits, plan: Plan, grippers: tuple[float, float]
) -> tuple[Plan, float] | None:
    """Return the arm's command and the gripper's that are nearest to what is wanted and touch nothing.

    What is wanted comes back itself where it is safe. None: nothing is; the arm then brakes on the way that was found
    safe together with its last command.

    Args:
        barrier: what knows the shapes.
        limits: the arm's commands so far.
        plan: the wanted next command.
        grippers: the gripper's last and its wanted command.
    """
    assert limits.last is not None
    goal = np.append(plan.positions, grippers[1])

    def follow(asked: np.ndarray) -> Sequence[np.ndarray]:
        chosen = plan if asked is goal else limits.towards(asked[:-1])
        return [np.append(stop, asked[-1]) for stop in (chosen.positions, *limits.stops(chosen))]

    safe = barrier.limit(np.append(limits.last.positions, grippers[0]), goal, follow)
    if safe is None:
        return None
    return (plan, grippers[1]) if safe is goal else (limits.towards(safe[:-1]), float(safe[-1]))
