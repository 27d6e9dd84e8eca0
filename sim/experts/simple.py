"""Experts that hold nothing: reach and press."""

from __future__ import annotations

from engram.sim.experts.base import Expert, Waypoint, down_on
from engram.sim.tasks.placement import above
from engram.sim.tasks.reach import HOVER_M

BUTTON_TOP_M = 0.034
"""The dome above the foot of its housing; closed finger tips end about 12 mm below the tool point."""


class ReachExpert(Expert):
    """Straight to the point above the cube, gripper open."""

    def waypoint(self) -> Waypoint:
        cube = self.world.oracle_pose(self.target()).position
        return Waypoint(above(cube, HOVER_M * self.scale), grip=0.0)


class PressExpert(Expert):
    """Over the button with closed fingers, then down on it."""

    depth_m = 0.002

    def waypoint(self) -> Waypoint:
        foot = self.world.oracle_pose(self.target()).position
        return down_on(self.world.tool_pose().position, above(foot, BUTTON_TOP_M), -self.depth_m)
