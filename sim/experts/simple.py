"""Experts that hold nothing: reach and press."""

from __future__ import annotations

import numpy as np

from engram.sim.experts.base import Expert, Waypoint, funnel
from engram.sim.tasks.reach import HOVER_M


class ReachExpert(Expert):
    """Straight to the point above the cube, gripper open."""

    def waypoint(self) -> Waypoint:
        cube = self.world.oracle_pose(self.world.task.targets["color"]).position
        return Waypoint(cube + (0.0, 0.0, HOVER_M), closed=False)


class PressExpert(Expert):
    """Over the button with closed fingers, then down on it."""

    clearance_m = 0.06
    depth_m = 0.03

    def waypoint(self) -> Waypoint:
        top = self.world.oracle_pose(self.world.task.targets["color"]).position
        distance = float(np.hypot(*(self.world.tool_pose().position - top)[:2]))
        height = self.clearance_m * funnel(distance, 0.012, 0.04) or -self.depth_m
        return Waypoint(top + (0.0, 0.0, height), closed=True)
