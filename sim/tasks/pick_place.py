"""Put the named cube into the bin."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from engram.core.geometry import from_frame
from engram.sim.scene import BIN_HALF_M, CUBE_HALF_M, SceneConfig
from engram.sim.tasks.base import Task
from engram.sim.tasks.placement import Region, place, upright
from engram.sim.tasks.progress import carried
from engram.sim.tasks.stack import RELEASED_FRACTION

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld

CUBES = Region(x=(0.40, 0.62), y=(-0.20, 0.06), radius=0.055)
BIN = Region(x=(0.44, 0.56), y=(0.19, 0.24), radius=0.125)


class PickPlace(Task):
    """The cube lies in the bin and the gripper has let go."""

    name: ClassVar[str] = "pick_place"
    scene: ClassVar[SceneConfig] = SceneConfig(cubes=("cube_a", "cube_b", "cube_c"), bin=True)
    scales: ClassVar[bool] = True
    max_steps: ClassVar[int] = 90
    colored: ClassVar[tuple[str, ...]] = scene.cubes
    instructions: ClassVar[tuple[str, ...]] = (
        "put the {color} cube in the bin",
        "pick up the {color} cube and put it in the bin",
        "place the {color} cube into the bin",
        "drop the {color} block in the bin",
        "grab the {color} cube and put it into the box",
        "move the {color} cube into the bin",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "take the {color} block and drop it into the bin",
        "throw the {color} cube in the box",
    )

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        bin_xy, *cubes = place(rng, [BIN] + [CUBES] * len(self.scene.cubes), world.robot.table)
        world.set_pose("bin", upright(bin_xy, world.oracle_pose("bin").position[2]))
        for body, xy in zip(self.scene.cubes, cubes, strict=True):
            world.set_pose(body, upright(xy, CUBE_HALF_M * world.scale, rng.uniform(-0.25, 0.25)))

    def oracle_progress(self, world: MujocoWorld) -> float:
        """Return up to a third for the tool at the cube, a third for lifting it, a third for the way to the bin."""
        return carried(world, self.targets["color"], "bin")

    def oracle_success(self, world: MujocoWorld) -> bool:
        cube = world.oracle_pose(self.targets["color"]).position
        x, y, z = from_frame(cube, world.oracle_pose("bin"))
        half, height = BIN_HALF_M * world.scale, 2 * CUBE_HALF_M * world.scale
        inside = max(abs(x), abs(y)) <= half and z <= height
        return bool(inside and world.gripper_fraction() <= RELEASED_FRACTION)
