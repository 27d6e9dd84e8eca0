"""The expert that waits on the remembered lane."""

from __future__ import annotations

import numpy as np

from engram.sim.experts.base import Waypoint, funnel
from engram.sim.experts.memory.base import MemoryExpert
from engram.sim.scene import BELT_TOP_M, CUBE_HALF_M
from engram.sim.tasks.memory.intercept import CATCH_X_M, InterceptGrab
from engram.sim.tasks.placement import above

CLOSING_S = 0.12
"""Fingers begin to close this long before the cube arrives."""
HELD_FRACTION = 0.35


class InterceptExpert(MemoryExpert):
    """Straddle the lane with open fingers, close them as the cube arrives, lift."""

    def waypoint(self) -> Waypoint:
        task = self.task
        assert isinstance(task, InterceptGrab)
        tool, parcel = self.world.tool_pose().position, self.world.oracle_pose("parcel").position
        here = abs(parcel[1] - tool[1]) < 0.03 and parcel[0] - tool[0] < CLOSING_S * task.speed
        if here and self.world.gripper_fraction() > HELD_FRACTION:
            return Waypoint(above(tool, 0.06), grip=1.0)
        spot = np.array([CATCH_X_M, task.lanes[self.cue], BELT_TOP_M + CUBE_HALF_M])
        aside = float(np.hypot(*(tool - spot)[:2]))
        return Waypoint(above(spot, 0.08 * funnel(aside, 0.012, 0.04)), grip=float(here))
