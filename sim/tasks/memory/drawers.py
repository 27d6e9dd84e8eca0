"""Open again what was open: ReopenDrawer."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from engram.sim.scene import SceneConfig
from engram.sim.tasks.memory.base import MemoryConfig, row
from engram.sim.tasks.memory.blocks import TwoStageTask
from engram.sim.tasks.placement import upright

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld

AJAR_M, SHUT_M, OPEN_M = 0.06, 0.006, 0.06
"""How far the one drawer is open at first; what counts as shut; what counts as opened again. Of 15 cm of travel."""


class ReopenDrawer(TwoStageTask):
    """One of the drawers is ajar: shut it, press the button, and open the same one again."""

    name: ClassVar[str] = "reopen_drawer"
    defaults: ClassVar[MemoryConfig] = MemoryConfig(alternatives=3)
    most: ClassVar[int] = 3
    act_steps: ClassVar[int] = 150
    instructions: ClassVar[tuple[str, ...]] = (
        "close the open drawer, press the button, then open the same drawer again",
        "shut the drawer, push the button and reopen the drawer that was open",
        "close the drawer, press the button, open it again",
        "push the open drawer shut, then the button, then pull the same drawer open",
        "shut what is open, press the button and reopen it",
        "close the drawer that is ajar and, after the button, open that one again",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "drawer shut, button pressed, and then the same drawer open once more",
        "close it, hit the button, and pull open the drawer that was open at first",
    )

    def build_scene(self) -> SceneConfig:
        return SceneConfig(drawers=tuple(f"drawer_{i}" for i in range(self.k)), buttons=(self.button,))

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        self.oracle_cue = int(rng.integers(self.k))
        self.drawers = self.scene.drawers
        shift = rng.uniform((-0.02, -0.02), (0.02, 0.02))
        for body, y in zip(self.drawers, row(self.k, 0.125), strict=True):
            world.set_pose(f"{body}_cabinet", upright(np.array([0.60, y - 0.05]) + shift, 0.0))
        world.set_joint(self.drawers[self.oracle_cue], AJAR_M + rng.uniform(-0.01, 0.01))
        button = np.array([0.46, 0.24]) + rng.uniform(-0.015, 0.015, 2)
        world.set_pose(self.button, upright(button, world.oracle_pose(self.button).position[2]))
        world.set_color(self.button, self.color("blue"))

    def first_done(self, world: MujocoWorld) -> bool:
        return all(world.oracle_joint(body) < SHUT_M for body in self.drawers)

    def straighten(self, world: MujocoWorld) -> None:
        for body in self.drawers:
            world.set_joint(body, 0.0)

    def judge(self, world: MujocoWorld) -> None:
        for i, body in enumerate(self.drawers):
            if world.oracle_joint(body) >= OPEN_M:
                self.decide(i == self.oracle_cue)
