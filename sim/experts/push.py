"""The expert that pushes a cube."""

from __future__ import annotations

import numpy as np

from engram.sim.experts.base import Expert, Waypoint, funnel

STANDOFF_M = 0.06
"""Where the fingers come down, behind the cube's centre."""
TRAVEL_M = 0.09
"""Height of the tool while it goes around."""
PUSH_M = 0.028
"""Height of the tool while it pushes: finger tips 16 mm above the table."""
GRIP = 0.75
"""Fingers 3 cm apart touch the cube near both its edges: it neither turns nor slips past."""
STEP_M = 0.04
"""How far ahead of the tool the push aims: with the gain of 0.6, 24 mm per step."""
DOWN_M = 0.007
"""How near to the pushing height counts as down: higher up, the fingers could land on the cube."""
JAMMED_M = 0.012
"""This far below the pushing height the fingers are wedged against the table: first lift them."""
TURN_MAX_RAD = 0.7


class PushExpert(Expert):
    """Go behind the cube, seen from the mark, come down, push along the line to the mark."""

    def waypoint(self) -> Waypoint:
        tool = self.world.tool_pose().position
        cube = self.world.oracle_pose(self.target()).position
        way = (self.world.oracle_pose("mark").position - cube)[:2]
        left = float(np.linalg.norm(way))
        ahead = way / max(left, 1e-6)
        yaw = float(np.clip(np.arctan2(ahead[1], ahead[0]), -TURN_MAX_RAD, TURN_MAX_RAD))
        offset = (tool - cube)[:2] / self.scale  # as on a table of full size, like all that follows
        along = float(offset @ ahead)
        aside = float(np.linalg.norm(offset - along * ahead))
        behind = -STANDOFF_M - 0.02 < along < -0.02 and aside < 0.018
        height = tool[2] / self.scale
        if height < PUSH_M - JAMMED_M:
            return Waypoint(tool + self.scale * np.array([*(-0.02 * ahead), 0.03]), GRIP, yaw)
        if behind and height < PUSH_M + DOWN_M:
            step = self.scale * along + min(left, self.scale * STEP_M)
            forward = cube[:2] + step * ahead  # on the line, not only towards it
            return Waypoint(np.append(forward, self.scale * PUSH_M), GRIP, yaw)
        start = cube[:2] - self.scale * STANDOFF_M * ahead
        away = float(np.linalg.norm(tool[:2] - start)) / self.scale
        height = PUSH_M + (TRAVEL_M - PUSH_M) * funnel(away, 0.012, 0.03)
        return Waypoint(np.append(start, self.scale * height), GRIP, yaw)
