"""Touch what no camera sees any more: TouchUnseen."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from engram.core.errors import InvalidInputError
from engram.core.robot import RobotConfig
from engram.sim.props import BLOCK_HALF_M, Prop
from engram.sim.scene import SceneConfig
from engram.sim.tasks.memory.base import MemoryConfig, MemoryTask, row, touched
from engram.sim.tasks.memory.touch import SHOW_STEPS, paint, show
from engram.sim.tasks.placement import upright

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld

CAP_AHEAD_M = 0.08
"""How far before the camera the middle of its lens cap sits."""


class TouchUnseen(MemoryTask):
    """Blocks of several colours lie there; then all cameras are covered, for good; touch the red block.

    The blocks stay where they are, so that their remembered positions suffice.
    """

    name: ClassVar[str] = "touch_unseen"
    most: ClassVar[int] = 5
    act_steps: ClassVar[int] = 50
    instructions: ClassVar[tuple[str, ...]] = (
        "touch the red block although it is out of view",
        "reach for the red block that you cannot see now",
        "touch the red block in the dark",
        "put your hand on the red block while the cameras are covered",
        "find the red block without the cameras and touch it",
        "tap the red block that went out of view",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "where was the red block? touch it blindly",
        "the cameras are covered: touch the red block",
    )
    option_height_m: ClassVar[float] = 2 * BLOCK_HALF_M

    def __init__(self, config: MemoryConfig | None = None) -> None:
        super().__init__(config)
        if self.config.first_color:
            raise InvalidInputError(f"task {self.name!r}: first_color={self.config.first_color}, its words say red: 0")

    @property
    def show_steps(self) -> int:
        return SHOW_STEPS

    @property
    def options(self) -> tuple[str, ...]:
        """Agents, of which the first is the red one; they stand on the places in the order of ``order``."""
        return tuple(f"block_{color}" for color in list(self.palette)[: self.k])

    def build_scene(self) -> SceneConfig:
        return SceneConfig(props=tuple(Prop(name, "block") for name in self.options))

    def scene_for(self, robot: RobotConfig) -> SceneConfig:
        """Return the scene with a cap for each camera of ``robot``."""
        scene = super().scene_for(robot)
        return replace(scene, props=(*(Prop(f"{camera}_cap", "cap") for camera in robot.camera_names), *scene.props))

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        places = np.column_stack((np.full(self.k, 0.50), row(self.k, 0.12)))
        self.places = places + rng.uniform(-0.03, 0.03, places.shape)
        self.order = rng.permutation(self.k)
        self.oracle_cue = int(self.order[0])

    def script(self, world: MujocoWorld) -> Iterator[bool]:
        paint(world, self.options, self.palette)
        show(world, self.options, self.places[self.order])
        yield from self.park(SHOW_STEPS)
        for arm in itertools.chain(self.park(self.config.delay), self.choose(world)):
            self._cover(world)
            yield arm

    def _cover(self, world: MujocoWorld) -> None:
        """Put each camera's cap where the camera is now."""
        for name in world.robot.camera_names:
            camera = world.data.camera(name)
            lens = camera.xpos - CAP_AHEAD_M * camera.xmat.reshape(3, 3)[:, 2]  # a camera looks along its -z
            world.set_pose(f"{name}_cap", upright(lens[:2], lens[2]))

    def judge(self, world: MujocoWorld) -> None:
        if chosen := touched(world, self.options):
            self.decide(chosen == [0])
