"""Partial credit: how near a state is to success."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engram.sim.scene import CUBE_HALF_M

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld

FAR_M = 0.4
"""From here on it is no credit to be nearer, on a table of full size."""
LIFTED_M = 0.02
"""A cube that is so far above the table is lifted."""


def nearness(a: np.ndarray, b: np.ndarray, far: float) -> float:
    """Return 1 where the points ``a`` and ``b`` (m) are one, 0 where they are ``far`` m or more apart."""
    return max(0.0, 1.0 - float(np.linalg.norm(a - b)) / far)


def carried(world: MujocoWorld, cube: str, goal: str) -> float:
    """Return up to a third for the tool at ``cube``, a third for lifting it, a third for the way to above ``goal``."""
    at, far = world.oracle_pose(cube).position, FAR_M * world.scale
    if at[2] < (CUBE_HALF_M + LIFTED_M) * world.scale:
        return nearness(world.tool_pose().position, at, far) / 3
    return 2 / 3 + nearness(at[:2], world.oracle_pose(goal).position[:2], far) / 3
