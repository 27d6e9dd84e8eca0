"""Experts that grasp a cube and carry it somewhere."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from engram.sim.experts.base import Expert, Waypoint, funnel, square_yaw
from engram.sim.scene import CUBE_HALF_M
from engram.sim.tasks.placement import above

APPROACH_M = 0.08
"""How far above a cube open fingers travel."""
HELD_FRACTION = 0.35
"""Fingers that stand on both sides of a cube are closed at least this far."""
CARRY_M = 0.09
"""Height of a carried cube's centre: its underside passes over standing cubes with 3 cm to spare."""
RETREAT_M = 0.06


class CarryExpert(Expert):
    """Grasp the target cube from above, carry it over :meth:`goal`, lower it, let go, retreat."""

    @abstractmethod
    def goal(self) -> np.ndarray:
        """Return where the cube's centre (3,) m shall be let go."""

    @abstractmethod
    def placed(self, offset: np.ndarray) -> bool:
        """Tell whether a cube at ``offset`` (3,) m from the goal may be let go."""

    def waypoint(self) -> Waypoint:
        pose = self.world.oracle_pose(self.target())
        tool, cube, goal = self.world.tool_pose().position, pose.position, self.goal()
        between = float(np.linalg.norm(tool - cube)) < CUBE_HALF_M * self.scale
        if self.placed(cube - goal):
            return self._let_go(tool, square_yaw(pose), between)
        if between and self.world.gripper_fraction() > HELD_FRACTION:
            return self._carry(tool, cube, goal)
        return self._grasp(tool, cube, square_yaw(pose))

    def _grasp(self, tool: np.ndarray, cube: np.ndarray, yaw: float) -> Waypoint:
        aside = float(np.hypot(*(tool - cube)[:2]))
        near = 0.010 * self.scale
        height = APPROACH_M * self.scale * funnel(aside, near, 0.035 * self.scale)
        ready = aside < near and abs(tool[2] - cube[2]) < near
        return Waypoint(above(cube, height), grip=float(ready), yaw=yaw)

    def _carry(self, tool: np.ndarray, cube: np.ndarray, goal: np.ndarray) -> Waypoint:
        aside = float(np.hypot(*(goal - cube)[:2]))
        scale = self.scale
        rise = max(0.0, CARRY_M * scale - goal[2], 0.04 * scale)
        height = goal[2] + rise * funnel(aside, 0.010 * scale, 0.05 * scale)
        free = 1.0 - funnel(height - cube[2], 0.01 * scale, 0.03 * scale)  # sideways only when lifted
        step = np.append(free * (goal - cube)[:2], height - cube[2])
        return Waypoint(tool + step, grip=1.0)

    def _let_go(self, tool: np.ndarray, yaw: float, between: bool) -> Waypoint:
        opened = self.world.gripper_fraction() < 0.25
        return Waypoint(above(tool, RETREAT_M * self.scale if opened or not between else 0.0), grip=0.0, yaw=yaw)


class PickPlaceExpert(CarryExpert):
    """Let the cube fall into the bin from just above its rim."""

    def goal(self) -> np.ndarray:
        return above(self.world.oracle_pose("bin").position, 0.06 * self.scale)

    def placed(self, offset: np.ndarray) -> bool:
        return bool(np.abs(offset[:2]).max() < 0.03 * self.scale and offset[2] < 0.02 * self.scale)


class StackExpert(CarryExpert):
    """Set the cube down centred on the other one."""

    def goal(self) -> np.ndarray:
        return above(self.world.oracle_pose(self.target("other")).position, 2 * CUBE_HALF_M)

    def placed(self, offset: np.ndarray) -> bool:
        return bool(np.hypot(*offset[:2]) < 0.012 and abs(offset[2]) < 0.005)
