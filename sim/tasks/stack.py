"""Stack one named cube on another."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from engram.sim.scene import CUBE_HALF_M, SceneConfig
from engram.sim.tasks.base import Task
from engram.sim.tasks.placement import TABLE, place, upright
from engram.sim.tasks.progress import carried

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld

CENTRED_M = 0.02
"""Half a cube: farther out the centre of mass is off the lower cube."""
HEIGHT_TOLERANCE_M = 0.005
RELEASED_FRACTION = 0.3
"""The gripper holds a cube at about 0.5 closed; below this it has let go."""


class Stack(Task):
    """The upper cube rests on the lower one and the gripper has let go."""

    name: ClassVar[str] = "stack"
    scene: ClassVar[SceneConfig] = SceneConfig(cubes=("cube_a", "cube_b", "cube_c"))
    max_steps: ClassVar[int] = 90
    colored: ClassVar[tuple[str, ...]] = scene.cubes
    instructions: ClassVar[tuple[str, ...]] = (
        "stack the {color} cube on the {other} cube",
        "put the {color} cube on the {other} cube",
        "place the {color} cube on top of the {other} cube",
        "set the {color} block on the {other} block",
        "pick up the {color} cube and stack it on the {other} one",
        "build a tower with the {color} cube on the {other} cube",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "lay the {color} block on top of the {other} block",
        "take the {color} cube and put it onto the {other} cube",
    )

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        for body, xy in zip(self.scene.cubes, place(rng, [TABLE] * 3), strict=True):
            world.set_pose(body, upright(xy, CUBE_HALF_M, rng.uniform(-0.25, 0.25)))

    def oracle_progress(self, world: MujocoWorld) -> float:
        """Return up to a third for the tool at the cube, a third for lifting it, a third for the way to the other."""
        return carried(world, self.targets["color"], self.targets["other"])

    def oracle_success(self, world: MujocoWorld) -> bool:
        upper, lower = self.targets["color"], self.targets["other"]
        offset = world.oracle_pose(upper).position - world.oracle_pose(lower).position
        on_top = np.hypot(*offset[:2]) <= CENTRED_M and abs(offset[2] - 2 * CUBE_HALF_M) <= HEIGHT_TOLERANCE_M
        touched = world.oracle_contact(upper, world.robot.hand_link)
        released = world.gripper_fraction() <= RELEASED_FRACTION and not touched
        return bool(on_top and released and world.oracle_contact(upper, lower))
