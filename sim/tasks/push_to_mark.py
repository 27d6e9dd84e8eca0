"""Push the named cube onto the mark on the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from engram.sim.scene import CUBE_HALF_M, SceneConfig
from engram.sim.tasks.base import Task
from engram.sim.tasks.placement import Region, place, upright
from engram.sim.tasks.progress import FAR_M, nearness

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld

TOLERANCE_M = 0.04
CUBES = Region(x=(0.41, 0.47), y=(-0.17, 0.17), radius=0.065)
MARK = Region(x=(0.60, 0.66), y=(-0.07, 0.07), radius=0.02)


class PushToMark(Task):
    """The cube's centre within 4 cm of the mark, on the table. The mark lies beyond the cubes, seen from the robot."""

    name: ClassVar[str] = "push_to_mark"
    scene: ClassVar[SceneConfig] = SceneConfig(cubes=("cube_a", "cube_b"), mark=True)
    scales: ClassVar[bool] = True
    max_steps: ClassVar[int] = 80
    colored: ClassVar[tuple[str, ...]] = scene.cubes
    instructions: ClassVar[tuple[str, ...]] = (
        "push the {color} cube onto the mark",
        "push the {color} cube to the mark",
        "slide the {color} cube onto the mark",
        "move the {color} cube onto the mark by pushing it",
        "shove the {color} block to the mark",
        "push the {color} block to the target",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "slide the {color} block over to the mark",
        "nudge the {color} cube onto the target",
    )

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        *cubes, mark = place(rng, [CUBES] * len(self.scene.cubes) + [MARK], world.robot.table)
        for body, xy in zip(self.scene.cubes, cubes, strict=True):
            world.set_pose(body, upright(xy, CUBE_HALF_M * world.scale, rng.uniform(-0.25, 0.25)))
        world.set_pose("mark", upright(mark, world.oracle_pose("mark").position[2]))

    def oracle_progress(self, world: MujocoWorld) -> float:
        """Return a third for the tool at the cube, and the rest for the cube at the mark."""
        cube, far = world.oracle_pose(self.targets["color"]).position, FAR_M * world.scale
        at_mark = nearness(cube[:2], world.oracle_pose("mark").position[:2], far)
        return nearness(world.tool_pose().position, cube, far) / 3 + 2 / 3 * at_mark

    def oracle_success(self, world: MujocoWorld) -> bool:
        offset = world.oracle_pose(self.targets["color"]).position - world.oracle_pose("mark").position
        lies = abs(offset[2] - CUBE_HALF_M * world.scale) <= 0.01 * world.scale
        return bool(np.hypot(*offset[:2]) <= TOLERANCE_M * world.scale and lies)
