"""Touch what was shown before: ShellTouch, RememberColor, MatchColor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from engram.sim.props import BALL_RADIUS_M, BLOCK_HALF_M, SHELL_HEIGHT_M, Prop
from engram.sim.scene import SceneConfig
from engram.sim.tasks.memory.base import HOMING_STEPS, PALETTE, PARK, Color, MemoryTask, put_away, row, touched
from engram.sim.tasks.placement import upright

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld

SHOW_STEPS, COVER_STEPS = 5, 5
RAISED_M = 0.14
"""How high above the table the shells begin."""


class ShellTouch(MemoryTask):
    """A ball lies in the open; shells come down over it and over nothing; touch the one that hides the ball."""

    name: ClassVar[str] = "shell_touch"
    most: ClassVar[int] = 4
    act_steps: ClassVar[int] = 50
    instructions: ClassVar[tuple[str, ...]] = (
        "touch the shell that hides the ball",
        "touch the cup with the ball under it",
        "show me which shell covers the ball",
        "put your hand on the cup that hides the ball",
        "find the ball and touch its shell",
        "tap the shell over the ball",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "where is the ball? touch that cup",
        "point out the shell with the ball by touching it",
    )
    option_height_m: ClassVar[float] = SHELL_HEIGHT_M

    @property
    def show_steps(self) -> int:
        return SHOW_STEPS + COVER_STEPS

    @property
    def options(self) -> tuple[str, ...]:
        """Agents to choose among, in the order of the cues."""
        return tuple(f"shell_{i}" for i in range(self.k))

    def build_scene(self) -> SceneConfig:
        return SceneConfig(props=(Prop("ball", "ball"), *(Prop(name, "shell") for name in self.options)))

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        self.oracle_cue = int(rng.integers(self.k))
        places = np.column_stack((np.full(self.k, 0.53), row(self.k, 0.12)))
        self.places = places + rng.uniform(-0.015, 0.015, places.shape)

    def script(self, world: MujocoWorld) -> Iterator[bool]:
        world.set_pose("ball", upright(self.places[self.oracle_cue], BALL_RADIUS_M))
        self._raise(world, RAISED_M)
        yield from self.park(SHOW_STEPS)
        for height in np.linspace(RAISED_M, 0.0, COVER_STEPS + 1)[1:]:
            self._raise(world, height)
            yield PARK
        yield from self.park(self.config.delay)
        yield from self.choose(world)

    def _raise(self, world: MujocoWorld, height: float) -> None:
        for body, xy in zip(self.options, self.places, strict=True):
            world.set_pose(body, upright(xy, height))

    def judge(self, world: MujocoWorld) -> None:
        if chosen := touched(world, self.options):
            self.decide(chosen == [self.oracle_cue])


class RememberColor(MemoryTask):
    """A cube is shown and taken away; later several lie there in new places; touch the one of the same colour."""

    name: ClassVar[str] = "remember_color"
    most: ClassVar[int] = len(PALETTE)
    act_steps: ClassVar[int] = 50
    instructions: ClassVar[tuple[str, ...]] = (
        "touch the cube of the colour that was shown",
        "touch the cube with the colour you saw first",
        "remember the colour and touch that cube",
        "touch the cube that looks like the one before",
        "put your hand on the block of the colour that was shown",
        "find the cube of the first colour and touch it",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "which block has the colour from before? touch it",
        "tap the cube whose colour was shown at the start",
    )
    option_height_m: ClassVar[float] = 2 * BLOCK_HALF_M

    @property
    def show_steps(self) -> int:
        return SHOW_STEPS

    @property
    def options(self) -> tuple[str, ...]:
        """Agents to choose among, in the order of the cues: option i has colour i."""
        return tuple(f"cube_{color}" for color in list(self.palette)[: self.k])

    def build_scene(self) -> SceneConfig:
        return SceneConfig(props=(Prop("sample", "block"), *(Prop(name, "block") for name in self.options)))

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        self.oracle_cue = int(rng.integers(self.k))
        self.places = scattered(rng, self.k)

    def script(self, world: MujocoWorld) -> Iterator[bool]:
        paint(world, self.options, self.palette)
        world.set_color("sample", list(self.palette.values())[self.oracle_cue])
        world.set_pose("sample", upright(np.array([0.56, 0.0]), BLOCK_HALF_M))
        yield from self.park(SHOW_STEPS)
        put_away(world, "sample")
        yield from self.park(self.config.delay)
        show(world, self.options, self.places)
        yield from self.choose(world)

    def judge(self, world: MujocoWorld) -> None:
        if chosen := touched(world, self.options):
            self.decide(chosen == [self.oracle_cue])


class MatchColor(RememberColor):
    """Several trials, the cubes in new places each time; only the first shows the colour that counts in all."""

    name: ClassVar[str] = "match_color"
    act_steps: ClassVar[int] = 110
    instructions: ClassVar[tuple[str, ...]] = (
        "touch the same colour in every trial",
        "match the colour of the lamp each time",
        "keep touching the cube of the first colour",
        "always choose the colour of the first round",
        "touch the matching cube in each round",
        "match the lamp now and remember it for the next round",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "stay with the colour that matched in the first round",
        "in each trial tap the cube that matches the lamp",
    )

    def build_scene(self) -> SceneConfig:
        return SceneConfig(props=(Prop("sample", "plate"), *(Prop(name, "block") for name in self.options)))

    @property
    def show_steps(self) -> int:
        return SHOW_STEPS + HOMING_STEPS

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        self.oracle_cue = int(rng.integers(self.k))
        self.places, self.next_places = scattered(rng, self.k), scattered(rng, self.k)

    def script(self, world: MujocoWorld) -> Iterator[bool]:
        paint(world, self.options, self.palette)
        world.set_color("sample", list(self.palette.values())[self.oracle_cue])
        world.set_pose("sample", upright(np.array([0.70, 0.0]), 0.0))
        show(world, self.options, self.places)
        yield from self.park(SHOW_STEPS)
        yield from self.choose(world, hidden=False)
        if self.lost:
            return
        self.done, self.places = False, self.next_places
        for body in ("sample", *self.options):
            put_away(world, body)
        yield from self.park(HOMING_STEPS + self.config.delay)
        show(world, self.options, self.places)
        yield from self.choose(world)


def scattered(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return ``count`` places (count, 2) m in random order: rows of at most five, a little off the grid."""
    rows = [0.53] if count <= 5 else [0.47, 0.59]
    wide = -(-count // len(rows))
    grid = np.array([(x, y) for x in rows for y in row(wide, 0.10)])
    return rng.permutation(grid)[:count] + rng.uniform(-0.012, 0.012, (count, 2))


def paint(world: MujocoWorld, options: tuple[str, ...], palette: dict[str, Color]) -> None:
    """Give option i the palette's colour i."""
    for body, rgb in zip(options, palette.values(), strict=False):
        world.set_color(body, rgb)


def show(world: MujocoWorld, options: tuple[str, ...], places: np.ndarray) -> None:
    """Put the options on their places (n, 2) m."""
    for body, xy in zip(options, places, strict=True):
        world.set_pose(body, upright(xy, BLOCK_HALF_M))
