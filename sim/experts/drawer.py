"""The expert that pulls the drawer by its handle."""

from __future__ import annotations

import numpy as np

from engram.core.geometry import rotation
from engram.sim.experts.base import Expert, Waypoint, funnel, square_yaw
from engram.sim.tasks.placement import above

APPROACH_M = 0.08
HELD_FRACTION = 0.5
STEP_M = 0.05
"""How far ahead of the handle the pull aims."""


class DrawerExpert(Expert):
    """Over the handle with open fingers, down, close, pull along the drawer's slide."""

    def names(self) -> tuple[str, str]:
        """Return the bodies of the drawer and of its handle."""
        return "drawer", "handle"

    def waypoint(self) -> Waypoint:
        return self.by_handle()

    def by_handle(self, outward: float = 1.0) -> Waypoint:
        """Return the way to the handle and along the slide, out (1) or in (-1)."""
        drawer, handle_body = self.names()
        tool, handle = self.world.tool_pose().position, self.world.oracle_pose(handle_body)
        along = rotation(self.world.oracle_pose(drawer)).apply((-outward, 0.0, 0.0))
        offset = tool - handle.position
        near = float(np.abs(offset).max()) < 0.02
        if near and self.world.gripper_fraction() > HELD_FRACTION:
            return Waypoint(tool + STEP_M * along - np.array([0.0, 0.0, offset[2]]), grip=1.0)
        aside = float(np.hypot(*offset[:2]))
        height = APPROACH_M * funnel(aside, 0.010, 0.035)
        ready = aside < 0.010 and abs(offset[2]) < 0.012
        return Waypoint(above(handle.position, height), grip=float(ready), yaw=square_yaw(handle))
