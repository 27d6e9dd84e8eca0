"""Press the named button."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from engram.sim.scene import SceneConfig
from engram.sim.tasks.base import Task
from engram.sim.tasks.placement import Region, place, upright
from engram.sim.tasks.progress import FAR_M, nearness

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld

PRESSED_M = 0.006
BUTTONS = Region(x=(0.42, 0.60), y=(-0.20, 0.20), radius=0.06)


class PressButton(Task):
    """The named button is down, and no other."""

    name: ClassVar[str] = "press_button"
    scene: ClassVar[SceneConfig] = SceneConfig(buttons=("button_a", "button_b", "button_c"))
    max_steps: ClassVar[int] = 50
    colored: ClassVar[tuple[str, ...]] = scene.buttons
    instructions: ClassVar[tuple[str, ...]] = (
        "press the {color} button",
        "push the {color} button",
        "hit the {color} button",
        "push down the {color} button",
        "press down on the {color} button",
        "touch and press the {color} button",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "activate the {color} button",
        "give the {color} button a press",
    )

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        for body, xy in zip(self.scene.buttons, place(rng, [BUTTONS] * 3), strict=True):
            world.set_pose(body, upright(xy, world.oracle_pose(body).position[2]))

    def oracle_progress(self, world: MujocoWorld) -> float:
        """Return two thirds for the tool at the button, and the rest for how far it is down; 0 once another is."""
        button = self.targets["color"]
        if any(world.oracle_joint(other) >= PRESSED_M for other in self.scene.buttons if other != button):
            return 0.0
        at_button = nearness(world.tool_pose().position, world.oracle_pose(button).position, FAR_M)
        return float(2 / 3 * at_button + np.clip(world.oracle_joint(button) / PRESSED_M, 0.0, 1.0) / 3)

    def oracle_success(self, world: MujocoWorld) -> bool:
        pressed = {b for b in self.scene.buttons if world.oracle_joint(b) >= PRESSED_M}
        return pressed == {self.targets["color"]}
