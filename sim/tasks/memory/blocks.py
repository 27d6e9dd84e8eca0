"""Move blocks by what was where: TakeItBack, PutBlockBack, RearrangeBlock, ChangeFood."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from engram.sim.props import Prop
from engram.sim.scene import CUBE_HALF_M, SceneConfig
from engram.sim.tasks.memory.base import FREE, HOMING_STEPS, LIT, MemoryConfig, MemoryTask, row
from engram.sim.tasks.placement import upright
from engram.sim.tasks.press_button import PRESSED_M
from engram.sim.tasks.stack import HEIGHT_TOLERANCE_M, RELEASED_FRACTION

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld

Stage = Literal["before", "press", "after"]
NEAR_M = 0.03
"""How far from the middle of its patch a block may lie."""
TIDY_M = 0.006
"""How far a block lies from the middle of its patch once the cell has straightened it."""
SERVE_STEPS, CLEAR_STEPS = 4, 2


def lies_at(world: MujocoWorld, block: str, xy: np.ndarray, near: float = NEAR_M) -> bool:
    """Tell whether ``block`` rests on the table within ``near`` m of ``xy`` (2,) m and the gripper has let go."""
    position = world.oracle_pose(block).position
    placed = np.hypot(*(position[:2] - xy)) <= near and abs(position[2] - CUBE_HALF_M) <= HEIGHT_TOLERANCE_M
    released = world.gripper_fraction() <= RELEASED_FRACTION and not world.oracle_contact(block, world.robot.hand_link)
    return bool(placed and released)


class TwoStageTask(MemoryTask):
    """Do something, press the button where there is one; then, from home, do what depends on how it was before.

    In between the cell straightens the things by a few random millimetres, so that how exactly they lie tells nothing.
    """

    button: ClassVar[str] = "next"

    def __init__(self, config: MemoryConfig | None = None) -> None:
        super().__init__(config)
        self.stage: Stage = "before"

    @abstractmethod
    def first_done(self, world: MujocoWorld) -> bool:
        """Tell whether the first job is done."""

    @abstractmethod
    def straighten(self, world: MujocoWorld) -> None:
        """Put the things where they are meant to lie by now, at places drawn beforehand."""

    def signal(self, world: MujocoWorld) -> None:
        """Show that the second job may begin."""

    def script(self, world: MujocoWorld) -> Iterator[bool]:
        while not self.first_done(world):
            yield FREE
        self.stage = "press"
        while self.scene.buttons and world.oracle_joint(self.button) < PRESSED_M:
            yield FREE
        yield from self.park(HOMING_STEPS)
        self.straighten(world)
        yield from self.park(self.config.delay)
        self.stage = "after"
        self.signal(world)
        yield from self.choose(world)

    def draw_tidy(self, rng: np.random.Generator, count: int) -> None:
        """Draw how ``count`` blocks lie once straightened."""
        self.tidy = [(rng.uniform(-TIDY_M, TIDY_M, 2), rng.uniform(-0.1, 0.1)) for _ in range(count)]

    def lay(self, world: MujocoWorld, block: str, xy: np.ndarray, index: int = 0) -> None:
        """Put ``block`` near ``xy`` (2,) m, as drawn."""
        offset, yaw = self.tidy[index]
        world.set_pose(block, upright(xy + offset, CUBE_HALF_M, yaw))


class PutBlockBack(TwoStageTask):
    """A block lies on one of the patches around the middle one: to the middle, press the button, and back."""

    name: ClassVar[str] = "put_block_back"
    defaults: ClassVar[MemoryConfig] = MemoryConfig(alternatives=4)
    most: ClassVar[int] = 4
    act_steps: ClassVar[int] = 150
    instructions: ClassVar[tuple[str, ...]] = (
        "move the block to the middle, press the button, then put it back where it was",
        "put the block in the middle, push the button and return the block to its patch",
        "bring the block to the centre, press the button, put the block back",
        "block to the middle patch, then the button, then the block back to its place",
        "centre the block, press the button and put the block back on its first patch",
        "take the block to the middle and, after pressing the button, back again",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "lay the block in the middle, hit the button and restore the block to where it came from",
        "middle, button, and then return the block to its old patch",
    )

    def build_scene(self) -> SceneConfig:
        props = tuple(Prop(f"patch_{i}", "patch") for i in range(self.k + 1))
        return SceneConfig(cubes=("block",), buttons=(self.button,), props=props)

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        self.oracle_cue = int(rng.integers(self.k))
        self.middle = np.array([0.52, -0.05]) + rng.uniform(-0.015, 0.015, 2)
        around = np.array([(0, -0.11), (0, 0.11), (-0.11, 0), (0.11, 0)])[: self.k]
        self.places = self.middle + around
        button = np.array([0.52, 0.22]) + rng.uniform(-0.015, 0.015, 2)
        world.set_pose(self.button, upright(button, world.oracle_pose(self.button).position[2]))
        for i, xy in enumerate((*self.places, self.middle)):
            world.set_pose(f"patch_{i}", upright(xy, 0.0))
        self.draw_tidy(rng, 2)
        self.lay(world, "block", self.places[self.oracle_cue], 1)
        world.set_color("block", self.color("red"))
        world.set_color(self.button, self.color("blue"))

    def first_done(self, world: MujocoWorld) -> bool:
        return lies_at(world, "block", self.middle)

    def straighten(self, world: MujocoWorld) -> None:
        self.lay(world, "block", self.middle)

    def judge(self, world: MujocoWorld) -> None:
        for i, xy in enumerate(self.places):
            if lies_at(world, "block", xy):
                self.decide(i == self.oracle_cue)


class TakeItBack(PutBlockBack):
    """A block lies on one of several patches: to the mark; when the mark lights up, back to its patch."""

    name: ClassVar[str] = "take_it_back"
    defaults: ClassVar[MemoryConfig] = MemoryConfig(alternatives=3)
    most: ClassVar[int] = 4
    act_steps: ClassVar[int] = 120
    instructions: ClassVar[tuple[str, ...]] = (
        "bring the block to the mark and take it back when the mark lights up",
        "move the block onto the mark, and back to its patch when the mark turns yellow",
        "carry the block to the mark, wait for the light and take it back",
        "put the block on the mark; at the light, return it to where it was",
        "take the block to the mark and, once it is lit, back to its first place",
        "deliver the block to the mark and bring it back on the signal",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "set the block on the mark and, when it glows, restore it to its patch",
        "to the mark with the block, and home again with it at the light",
    )

    def build_scene(self) -> SceneConfig:
        return SceneConfig(cubes=("block",), mark=True, props=tuple(Prop(f"patch_{i}", "patch") for i in range(self.k)))

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        self.oracle_cue = int(rng.integers(self.k))
        places = np.column_stack((np.full(self.k, 0.46), row(self.k, 0.12)))
        self.places = places + rng.uniform((-0.03, -0.015), (0.03, 0.015), places.shape)
        self.middle = np.array([0.62, 0.0]) + rng.uniform((-0.02, -0.08), (0.02, 0.08))
        world.set_pose("mark", upright(self.middle, world.oracle_pose("mark").position[2]))
        for i, xy in enumerate(self.places):
            world.set_pose(f"patch_{i}", upright(xy, 0.0))
        self.draw_tidy(rng, 2)
        self.lay(world, "block", self.places[self.oracle_cue], 1)
        world.set_color("block", self.color("red"))

    def signal(self, world: MujocoWorld) -> None:
        world.set_color("mark", LIT)


class RearrangeBlock(TwoStageTask):
    """One patch is empty: the middle block goes there, press the button, and the same block comes back again."""

    name: ClassVar[str] = "rearrange_block"
    defaults: ClassVar[MemoryConfig] = MemoryConfig(alternatives=2)
    most: ClassVar[int] = 4
    act_steps: ClassVar[int] = 150
    instructions: ClassVar[tuple[str, ...]] = (
        "move the middle block to the empty patch, press the button, then bring that block back",
        "fill the empty patch with the middle block, push the button and return the same block",
        "middle block to the free patch, button, and the block you moved back to the middle",
        "put the centre block on the empty patch, press the button, fetch the same block back",
        "rearrange: middle block to the gap, press the button, then the moved block to the middle",
        "take the middle block to the empty patch and, after the button, back to the middle",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "close the gap with the middle block, hit the button and restore that very block",
        "middle block into the gap, then the button, then the one you moved goes home",
    )

    @property
    def blocks(self) -> tuple[str, ...]:
        """The block of the middle first, then those on the other patches."""
        return tuple(f"block_{i}" for i in range(self.k))

    def build_scene(self) -> SceneConfig:
        props = tuple(Prop(f"patch_{i}", "patch") for i in range(self.k + 1))
        return SceneConfig(cubes=self.blocks, buttons=(self.button,), props=props)

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        self.oracle_cue = int(rng.integers(self.k))
        self.middle = np.array([0.52, -0.05]) + rng.uniform(-0.015, 0.015, 2)
        self.places = self.middle + np.array([(0, -0.12), (0, 0.12), (-0.12, 0), (0.12, 0)])[: self.k]
        button = np.array([0.52, 0.24]) + rng.uniform(-0.015, 0.015, 2)
        world.set_pose(self.button, upright(button, world.oracle_pose(self.button).position[2]))
        for i, xy in enumerate((*self.places, self.middle)):
            world.set_pose(f"patch_{i}", upright(xy, 0.0))
        self.draw_tidy(rng, 2 * self.k)
        others = [i for i in range(self.k) if i != self.oracle_cue]
        self.homes = dict(zip(self.blocks, (self.oracle_cue, *others), strict=True))  # block -> patch after stage one
        for i, block in enumerate(self.blocks):
            self.lay(world, block, self.middle if i == 0 else self.places[self.homes[block]], i)
            world.set_color(block, self.color("green"))
        world.set_color(self.button, self.color("blue"))

    def first_done(self, world: MujocoWorld) -> bool:
        return lies_at(world, self.blocks[0], self.places[self.oracle_cue])

    def straighten(self, world: MujocoWorld) -> None:
        for block, patch in self.homes.items():
            self.lay(world, block, self.places[patch], self.k + patch)

    def judge(self, world: MujocoWorld) -> None:
        for block in self.blocks:
            if lies_at(world, block, self.middle):
                self.decide(block == self.blocks[0])


class ChangeFood(MemoryTask):
    """All foods but one are served, one after the other; put the one on the plate that was not there yet."""

    name: ClassVar[str] = "change_food"
    defaults: ClassVar[MemoryConfig] = MemoryConfig(alternatives=2)
    most: ClassVar[int] = 4
    act_steps: ClassVar[int] = 70
    instructions: ClassVar[tuple[str, ...]] = (
        "change the food: put on the plate what was not served yet",
        "serve the food that has not been on the plate",
        "put the food on the plate that was never there",
        "serve something else than before",
        "change the dish for the one that was not served",
        "put the food that is still missing on the plate",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "which food was left out? serve it",
        "give the plate the one food it has not had",
    )

    @property
    def foods(self) -> tuple[str, ...]:
        """Agents, in the order of the cues."""
        return tuple(f"food_{i}" for i in range(self.k))

    @property
    def show_steps(self) -> int:
        return (self.k - 1) * (SERVE_STEPS + CLEAR_STEPS)

    def build_scene(self) -> SceneConfig:
        return SceneConfig(cubes=self.foods, props=(Prop("plate", "plate"),))

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        self.oracle_cue = int(rng.integers(self.k))
        served = [i for i in range(self.k) if i != self.oracle_cue]
        self.served = [self.foods[i] for i in rng.permutation(served)]
        places = np.column_stack((np.full(self.k, 0.46), row(self.k, 0.12)))
        self.homes = rng.permutation(places) + rng.uniform(-0.012, 0.012, places.shape)
        self.yaws = rng.uniform(-0.2, 0.2, self.k)
        self.plate = np.array([0.62, 0.0]) + rng.uniform((-0.015, -0.05), (0.015, 0.05))
        world.set_pose("plate", upright(self.plate, 0.0))
        for i, rgb in zip(range(self.k), self.palette.values(), strict=False):
            self.put_home(world, i)
            world.set_color(self.foods[i], rgb)

    def put_home(self, world: MujocoWorld, i: int) -> None:
        """Lay food ``i`` on its place beside the plate."""
        world.set_pose(self.foods[i], upright(self.homes[i], CUBE_HALF_M, self.yaws[i]))

    def script(self, world: MujocoWorld) -> Iterator[bool]:
        for food in self.served:
            world.set_pose(food, upright(self.plate, CUBE_HALF_M))
            yield from self.park(SERVE_STEPS)
            self.put_home(world, self.foods.index(food))
            yield from self.park(CLEAR_STEPS)
        yield from self.park(self.config.delay)
        yield from self.choose(world)

    def judge(self, world: MujocoWorld) -> None:
        for i, food in enumerate(self.foods):
            if lies_at(world, food, self.plate, near=0.04):
                self.decide(i == self.oracle_cue)
