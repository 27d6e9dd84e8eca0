"""Act on what no camera sees any more: TouchUnseen, PlaceUnseen.

Both are for policies that look up in the scene graph (``memory/context``) where the thing lies that the words name.
What it is and where it lies are drawn from the seed.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from engram.core.errors import InvalidInputError
from engram.core.robot import RobotConfig
from engram.sim.props import BLOCK_HALF_M, BUTTON_HEIGHT_M, CUP_HEIGHT_M, Prop, Shape
from engram.sim.scene import CUBE_HALF_M, SceneConfig
from engram.sim.tasks.memory.base import PALETTE, Color, MemoryConfig, MemoryTask, row, touched
from engram.sim.tasks.memory.blocks import lies_at
from engram.sim.tasks.memory.touch import SHOW_STEPS
from engram.sim.tasks.placement import upright

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld

CAP_AHEAD_M = 0.08
"""How far before the camera the middle of its lens cap sits."""


class Kind(NamedTuple):
    """A kind of thing: its shape, and the heights of its origin and of its top above the table [m]."""

    shape: Shape
    origin_m: float
    top_m: float


KINDS = {
    "cube": Kind("block", BLOCK_HALF_M, 2 * BLOCK_HALF_M),
    "cup": Kind("cup", 0.0, CUP_HEIGHT_M),
    "button": Kind("button", 0.0, BUTTON_HEIGHT_M),
}
"""Kinds to touch, by the word with which the geometric detector tells them apart."""


class UnseenTask(MemoryTask):
    """Things lie on the table, are hidden from all cameras after a short look, and stay where they are.

    ``oracle_cue`` is the number of the place on which the thing lies that the words name.
    """

    most: ClassVar[int] = len(PALETTE)
    kinds: ClassVar[Mapping[str, Kind]]
    """Kinds of things that the words name, by word."""
    middle_m: ClassVar[float]
    """Where the middle of the places is along x."""
    places: np.ndarray
    """(k, 2) m, one for each thing."""
    things: list[str]
    """What the words call the things, in the order of their places."""

    @property
    def show_steps(self) -> int:
        return SHOW_STEPS

    @property
    def options(self) -> tuple[str, ...]:
        """Agents to choose among, in the order of their places."""
        return tuple(f"{thing.split()[1]}_{i}" for i, thing in enumerate(self.things))

    @property
    def tops_m(self) -> list[float]:
        """Heights of the things' tops, in the order of their places."""
        return [self.kinds[thing.split()[1]].top_m for thing in self.things]

    @property
    def kept_colors(self) -> tuple[Color, ...]:
        return (_rgb(self.things[self.oracle_cue]),)

    def build_scene(self) -> SceneConfig:
        """One body of each kind for each place; the other kinds' stay out of sight."""
        every = itertools.product(self.kinds.items(), range(self.k))
        return SceneConfig(props=tuple(Prop(f"{word}_{i}", kind.shape) for (word, kind), i in every))

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        self.places = spread(rng, self.k, self.middle_m)

    def draw_words(self, rng: np.random.Generator) -> list[str]:
        named, *others = self.draw_things(rng)
        self.oracle_cue = int(rng.integers(self.k))
        self.things = [str(thing) for thing in rng.permutation(others)]
        self.things.insert(self.oracle_cue, named)
        return self._named()

    @abstractmethod
    def draw_things(self, rng: np.random.Generator) -> list[str]:
        """Draw ``k`` different things by what the words call them, first the one that is named."""

    def bind(self, asked: dict[str, str], drawn: list[str]) -> dict[str, str]:
        thing = asked["thing"]
        if thing in self.things:
            self.oracle_cue = self.things.index(thing)
        else:
            self.things[self.oracle_cue] = thing
        return {"thing": self._named()[0]}

    def _named(self) -> list[str]:
        self.colors = dict(zip(self.options, self.things, strict=True))
        return [self.options[self.oracle_cue]]

    def paint(self, world: MujocoWorld) -> None:
        for body, thing in self.colors.items():
            world.set_color(body, _rgb(thing))

    def script(self, world: MujocoWorld) -> Iterator[bool]:
        for body, thing, xy in zip(self.options, self.things, self.places, strict=True):
            world.set_pose(body, upright(xy, self.kinds[thing.split()[1]].origin_m))
        yield from self.park(SHOW_STEPS)
        for arm in itertools.chain(self.park(self.config.delay), self.choose(world)):
            self.hide(world)
            yield arm

    @abstractmethod
    def hide(self, world: MujocoWorld) -> None:
        """Put before the cameras what hides the things."""


@dataclass(frozen=True)
class TouchUnseenConfig(MemoryConfig):
    """How hard TouchUnseen is."""

    kinds: int = len(KINDS)
    """How many kinds of things there are: cubes, cups, buttons in this order."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.kinds <= len(KINDS):
            raise InvalidInputError(f"TouchUnseenConfig.kinds: {self.kinds}, expected 1..{len(KINDS)}")


class TouchUnseen(UnseenTask):
    """Cubes, cups and buttons in several colours lie there; all cameras are covered, for good; touch the named one.

    Where there is more than one kind, another thing shares its colour and another one its kind, so that neither word
    alone tells which one is meant.
    """

    name: ClassVar[str] = "touch_unseen"
    defaults: ClassVar[MemoryConfig] = TouchUnseenConfig()
    act_steps: ClassVar[int] = 50
    instructions: ClassVar[tuple[str, ...]] = (
        "touch the {thing} although it is out of view",
        "reach for the {thing} that you cannot see now",
        "touch the {thing} in the dark",
        "put your hand on the {thing} while the cameras are covered",
        "find the {thing} without the cameras and touch it",
        "tap the {thing} that went out of view",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "where was the {thing}? touch it blindly",
        "the cameras are covered: touch the {thing}",
    )
    slot_words: ClassVar[tuple[str, ...]] = tuple(f"{color} {kind}" for color in PALETTE for kind in KINDS)
    synonyms: ClassVar[Mapping[str, str]] = {f"{color} block": f"{color} cube" for color in PALETTE}
    kinds: ClassVar[Mapping[str, Kind]] = KINDS
    middle_m: ClassVar[float] = 0.53

    def scene_for(self, robot: RobotConfig) -> SceneConfig:
        """Return the scene with a cap for each camera of ``robot``."""
        scene = super().scene_for(robot)
        return replace(scene, props=(*(Prop(f"{camera}_cap", "cap") for camera in robot.camera_names), *scene.props))

    def draw_things(self, rng: np.random.Generator) -> list[str]:
        config = self.config
        assert isinstance(config, TouchUnseenConfig)
        colors, kinds = list(self.palette)[: self.k], list(KINDS)[: config.kinds]
        named, *rest = (str(t) for t in rng.permutation([f"{color} {kind}" for color in colors for kind in kinds]))
        color, kind = named.split()
        alike = [next((t for t in rest if word in t.split()), "") for word in (color, kind)]
        near = [str(t) for t in rng.permutation(alike) if t]
        return [named, *near, *(t for t in rest if t not in near)][: self.k]

    def hide(self, world: MujocoWorld) -> None:
        """Put each camera's cap where the camera is now."""
        for name in world.robot.camera_names:
            camera = world.data.camera(name)
            lens = camera.xpos - CAP_AHEAD_M * camera.xmat.reshape(3, 3)[:, 2]  # a camera looks along its -z
            world.set_pose(f"{name}_cap", upright(lens[:2], lens[2]))

    def judge(self, world: MujocoWorld) -> None:
        if chosen := touched(world, self.options):
            self.decide(chosen == [self.oracle_cue])


class PlaceUnseen(UnseenTask):
    """Flat buttons in several colours lie there; a cloth covers them, for good; put the white cube on the named one.

    The cameras go on seeing the cube, so that the policy has to look at it and to look up where the button lies.
    """

    name: ClassVar[str] = "place_unseen"
    act_steps: ClassVar[int] = 70
    instructions: ClassVar[tuple[str, ...]] = (
        "put the cube on the {thing} under the cloth",
        "lay the cube on the {thing} that went under the cloth",
        "bring the cube to the {thing} that is covered now",
        "carry the cube to the {thing} although the cloth hides it",
        "the cloth hides the {thing}: put the cube there",
        "where is the {thing}? lay the cube there",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "the cube belongs on the {thing}, which is covered",
        "find the {thing} under the cloth and lay the cube on it",
    )
    slot_words: ClassVar[tuple[str, ...]] = tuple(f"{color} button" for color in PALETTE)
    kinds: ClassVar[Mapping[str, Kind]] = {"button": Kind("lamp", 0.0, BUTTON_HEIGHT_M)}
    middle_m: ClassVar[float] = 0.56

    def build_scene(self) -> SceneConfig:
        scene = super().build_scene()
        return replace(scene, cubes=("cube",), props=(*scene.props, Prop("cloth", "cloth")))

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        super().arrange(world, rng)
        spot = rng.uniform((0.36, -0.10), (0.39, 0.10))
        world.set_pose("cube", upright(spot, CUBE_HALF_M, rng.uniform(-0.2, 0.2)))
        world.set_color("cube", (0.95, 0.95, 0.97))

    def draw_things(self, rng: np.random.Generator) -> list[str]:
        return [f"{color} button" for color in rng.permutation(list(self.palette)[: self.k])]

    def hide(self, world: MujocoWorld) -> None:
        """Spread the cloth over all places."""
        world.set_pose("cloth", upright(np.array([self.middle_m, 0.0]), 0.0))

    def judge(self, world: MujocoWorld) -> None:
        for i, xy in enumerate(self.places):
            if lies_at(world, "cube", xy):
                self.decide(i == self.oracle_cue)


def spread(rng: np.random.Generator, count: int, middle_m: float) -> np.ndarray:
    """Return ``count`` places (count, 2) m around x = ``middle_m``, row by row: up to four in one row, else two rows.

    Two of them are at least 7.6 cm apart.
    """
    one_row = count <= 4
    xs = [middle_m] if one_row else [middle_m - 0.06, middle_m + 0.06]
    ys = row(-(-count // len(xs)), 0.12 if one_row else 0.10)
    grid = np.array([(x, y) for x in xs for y in ys])
    jitter = np.array((0.03, 0.02)) if one_row else np.full(2, 0.012)
    taken = np.sort(rng.permutation(len(grid))[:count])
    return grid[taken] + rng.uniform(-jitter, jitter, (count, 2))


def _rgb(thing: str) -> Color:
    return PALETTE[thing.split()[0]]
