"""A task of your own: lift the cube that the instruction names. With it comes the scripted expert that shows how.

Run these in the folder that holds `examples/`, or copy this file anywhere and name it `my_task:LiftCube`:

    engram eval experts --tasks examples.task:LiftCube --episodes 20
    engram record --root data/lift --tasks examples.task:LiftCube --episodes 100
    engram train --dataset data/lift --out outputs/lift --steps 4000 --start-from base
    engram eval outputs/lift/policy --tasks examples.task:LiftCube --episodes 50
    engram up sim task:=examples.task:LiftCube policy:=outputs/lift/policy

In Gymnasium: gymnasium.make("engram/Task-v0", task="examples.task:LiftCube"), after `import engram.sim`.
"""

import numpy as np

from engram.sim.experts import CarryExpert
from engram.sim.scene import CUBE_HALF_M, SceneConfig
from engram.sim.tasks import Task
from engram.sim.tasks.placement import TABLE, place, upright

LIFTED_M = 0.10
"""The task is done when the cube's centre is this far above the table [m]."""


class LiftExpert(CarryExpert):
    """Grasps the cube and carries it straight up. It never lets go, because no place is the right one."""

    def goal(self) -> np.ndarray:
        """Return a point (3,) m above the cube."""
        x, y, _ = self.world.oracle_pose(self.target()).position
        return np.array([x, y, LIFTED_M + 0.04])

    def placed(self, offset: np.ndarray) -> bool:
        """Tell whether the cube may be let go."""
        return False


class LiftCube(Task):
    """Three cubes stand on the table; the named one must be lifted by 10 cm."""

    scene = SceneConfig(cubes=("cube_a", "cube_b", "cube_c"))
    colored = scene.cubes  # each gets a colour of its own; {color} in the wordings names one of them
    max_steps = 60  # control steps of 0.1 s
    instructions = ("lift the {color} cube", "pick up the {color} cube and hold it")
    held_out_instructions = ("raise the {color} block",)  # understood, but never recorded: tests new wordings
    expert = LiftExpert

    def arrange(self, world, rng: np.random.Generator) -> None:
        """Place the cubes at random, without overlap."""
        for body, xy in zip(self.scene.cubes, place(rng, [TABLE] * 3), strict=True):
            world.set_pose(body, upright(xy, CUBE_HALF_M, rng.uniform(-0.25, 0.25)))

    def oracle_success(self, world) -> bool:
        """Judge by the simulator's own state."""
        return bool(world.oracle_pose(self.targets["color"]).position[2] > LIFTED_M)
