"""Pull the drawer open."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from engram.sim.scene import SceneConfig
from engram.sim.tasks.base import Task
from engram.sim.tasks.placement import upright
from engram.sim.tasks.progress import FAR_M, nearness

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld

OPEN_M = 0.10
"""Of 15 cm of travel."""


class OpenDrawer(Task):
    """The drawer is out by at least 10 cm."""

    name: ClassVar[str] = "open_drawer"
    scene: ClassVar[SceneConfig] = SceneConfig(drawer=True)
    max_steps: ClassVar[int] = 60
    instructions: ClassVar[tuple[str, ...]] = (
        "open the drawer",
        "pull the drawer open",
        "pull out the drawer",
        "open the drawer by its handle",
        "slide the drawer open",
        "grab the handle and open the drawer",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "please get the drawer open",
        "pull on the handle until the drawer is open",
    )

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        here = world.oracle_pose("cabinet")
        xy = here.position[:2] + rng.uniform((-0.03, -0.10), (0.03, 0.10))
        world.set_pose("cabinet", upright(xy, here.position[2], rng.uniform(-0.15, 0.15)))

    def oracle_progress(self, world: MujocoWorld) -> float:
        """Return a third for the tool at the handle, and the rest for how far the drawer is out."""
        at_handle = nearness(world.tool_pose().position, world.oracle_pose("handle").position, FAR_M)
        return float(at_handle / 3 + 2 / 3 * np.clip(world.oracle_joint("drawer") / OPEN_M, 0.0, 1.0))

    def oracle_success(self, world: MujocoWorld) -> bool:
        return bool(world.oracle_joint("drawer") >= OPEN_M)
