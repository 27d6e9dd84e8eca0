"""Bring the open gripper above the named cube."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from engram.sim.scene import CUBE_HALF_M, SceneConfig
from engram.sim.tasks.base import Task
from engram.sim.tasks.placement import TABLE, above, place, upright
from engram.sim.tasks.progress import FAR_M, nearness

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld

HOVER_M = 0.10
"""Height of the goal above the cube's centre."""
TOLERANCE_M = 0.03
"""Cubes stand at least 11 cm apart, so no point is near two goals."""


class Reach(Task):
    """The tool point within 3 cm of the point 10 cm above the cube."""

    name: ClassVar[str] = "reach"
    scene: ClassVar[SceneConfig] = SceneConfig(cubes=("cube_a", "cube_b", "cube_c"))
    scales: ClassVar[bool] = True
    max_steps: ClassVar[int] = 40
    colored: ClassVar[tuple[str, ...]] = scene.cubes
    instructions: ClassVar[tuple[str, ...]] = (
        "move above the {color} cube",
        "reach for the {color} cube",
        "go to the {color} cube",
        "put your hand over the {color} cube",
        "hover above the {color} block",
        "bring the gripper to the {color} cube",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "position the gripper over the {color} block",
        "hold your hand above the {color} cube",
    )

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        for body, xy in zip(self.scene.cubes, place(rng, [TABLE] * 3, world.robot.table), strict=True):
            world.set_pose(body, upright(xy, CUBE_HALF_M * world.scale, rng.uniform(-0.25, 0.25)))

    def goal(self, world: MujocoWorld) -> np.ndarray:
        """Return the point (3,) m that the tool shall reach."""
        return above(world.oracle_pose(self.targets["color"]).position, HOVER_M * world.scale)

    def oracle_progress(self, world: MujocoWorld) -> float:
        """Return how near the tool is."""
        return nearness(world.tool_pose().position, self.goal(world), FAR_M * world.scale)

    def oracle_success(self, world: MujocoWorld) -> bool:
        distance = np.linalg.norm(world.tool_pose().position - self.goal(world))
        return bool(distance <= TOLERANCE_M * world.scale)
