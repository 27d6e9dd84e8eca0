"""Two tasks that no shipped policy was trained on, with the scripted experts that demonstrate them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from engram.sim.experts.carry import CarryExpert
from engram.sim.scene import CUBE_HALF_M, SceneConfig
from engram.sim.tasks import Task
from engram.sim.tasks.placement import TABLE, Region, above, place, upright

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld

LIFTED_M = 0.10
"""A cube is lifted whose centre is this far above the table [m]."""
ON_MARK_M = 0.04
"""A cube lies on the mark whose centre is this near to the mark's [m]."""
CUBES = Region(x=(0.50, 0.62), y=(-0.18, 0.18), radius=0.06)
MARK = Region(x=(0.40, 0.44), y=(-0.12, 0.12), radius=0.05)


class LiftExpert(CarryExpert):
    """Grasps the cube and carries it straight up. It never lets go, because no place is the right one."""

    def goal(self) -> np.ndarray:
        x, y, _ = self.world.oracle_pose(self.target()).position
        return np.array([x, y, LIFTED_M + 0.04])

    def placed(self, offset: np.ndarray) -> bool:
        return False


class Lift(Task):
    """The cube is 10 cm above the table. The shipped policies know such cubes as what is stacked, never as lifted."""

    scene: ClassVar[SceneConfig] = SceneConfig(cubes=("cube_a", "cube_b", "cube_c"))
    max_steps: ClassVar[int] = 60
    colored: ClassVar[tuple[str, ...]] = scene.cubes
    instructions: ClassVar[tuple[str, ...]] = ("pick up the {color} cube", "lift the {color} cube")
    expert = LiftExpert

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        for body, xy in zip(self.scene.cubes, place(rng, [TABLE] * 3), strict=True):
            world.set_pose(body, upright(xy, CUBE_HALF_M, rng.uniform(-0.25, 0.25)))

    def oracle_success(self, world: MujocoWorld) -> bool:
        return bool(world.oracle_pose(self.targets["color"]).position[2] > LIFTED_M)


class FetchExpert(CarryExpert):
    """Grasps the cube, sets it down on the mark and lets go."""

    def goal(self) -> np.ndarray:
        return above(self.world.oracle_pose("mark").position, CUBE_HALF_M)

    def placed(self, offset: np.ndarray) -> bool:
        return bool(np.hypot(*offset[:2]) < 0.015 and abs(offset[2]) < 0.006)


class Fetch(Task):
    """The cube lies on the mark, and the hand has let go. The mark lies this side of the cubes, seen from the robot:
    pushing, which the shipped policies know, leads away from it."""

    scene: ClassVar[SceneConfig] = SceneConfig(cubes=("cube_a", "cube_b"), mark=True)
    max_steps: ClassVar[int] = 90
    colored: ClassVar[tuple[str, ...]] = scene.cubes
    instructions: ClassVar[tuple[str, ...]] = ("put the {color} cube on the mark", "place the {color} cube on the mark")
    expert = FetchExpert

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        *cubes, mark = place(rng, [CUBES] * len(self.scene.cubes) + [MARK])
        for body, xy in zip(self.scene.cubes, cubes, strict=True):
            world.set_pose(body, upright(xy, CUBE_HALF_M, rng.uniform(-0.25, 0.25)))
        world.set_pose("mark", upright(mark, world.oracle_pose("mark").position[2]))

    def oracle_success(self, world: MujocoWorld) -> bool:
        cube = self.targets["color"]
        offset = world.oracle_pose(cube).position - world.oracle_pose("mark").position
        lies = abs(offset[2] - CUBE_HALF_M) <= 0.01 and np.hypot(*offset[:2]) <= ON_MARK_M
        return bool(lies and not world.oracle_contact(cube, world.robot.hand_link))
