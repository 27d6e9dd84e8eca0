"""The expert that pushes a cube with closed fingers."""

from __future__ import annotations

import numpy as np

from engram.sim.experts.base import Expert, Waypoint, funnel

STANDOFF_M = 0.06
"""Where the fingers come down, behind the cube's centre."""
TRAVEL_M = 0.09
"""Height of the tool while it goes around."""
PUSH_M = 0.022
"""Height of the tool while it pushes."""


class PushExpert(Expert):
    """Go behind the cube, seen from the mark, come down, push along the line to the mark."""

    def waypoint(self) -> Waypoint:
        tool = self.world.tool_pose().position
        cube = self.world.oracle_pose(self.world.task.targets["color"]).position
        mark = self.world.oracle_pose("mark").position
        way = (mark - cube)[:2]
        left = float(np.linalg.norm(way))
        ahead = way / max(left, 1e-6)
        offset = (tool - cube)[:2]
        along = float(offset @ ahead)
        aside = float(np.linalg.norm(offset - along * ahead))
        behind = -STANDOFF_M - 0.02 < along < -0.02 and aside < 0.015
        if behind and tool[2] < PUSH_M + 0.015:
            forward = min(left, 0.05)  # the fingers follow the line, the cube goes before them
            return Waypoint(np.append(cube[:2] + (along + forward) * ahead, PUSH_M), closed=True)
        start = cube[:2] - STANDOFF_M * ahead
        away = float(np.linalg.norm(tool[:2] - start))
        height = PUSH_M + (TRAVEL_M - PUSH_M) * funnel(away, 0.012, 0.04)
        return Waypoint(np.append(start, height), closed=True)
