"""The base of all tasks that need memory: a script, a cue that is gone when the arm may move, and one choice.

While a cue is shown and after it has gone, the cell holds the arm at home (:attr:`Task.parked`), so the hand cannot
encode it. Then the table looks alike for every cue, and one of the alternatives is right. A wrong choice is final.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from engram.core.errors import InvalidInputError
from engram.sim.props import AWAY_M, Prop
from engram.sim.scene import SceneConfig
from engram.sim.tasks.base import Task
from engram.sim.tasks.placement import upright

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld

PARK, FREE = True, False
"""What a script yields for each control step: the arm is held, or may move."""
HOMING_STEPS = 15
"""Control steps in which the cell brings the arm home from anywhere."""
Color = tuple[float, float, float]
"""Red, green, blue in [0, 1]."""
PALETTE: dict[str, Color] = {
    "red": (0.85, 0.10, 0.10),
    "green": (0.10, 0.65, 0.20),
    "blue": (0.10, 0.30, 0.90),
    "yellow": (0.95, 0.80, 0.10),
    "purple": (0.55, 0.15, 0.70),
    "orange": (0.95, 0.45, 0.05),
    "cyan": (0.10, 0.75, 0.80),
    "pink": (0.95, 0.50, 0.70),
    "black": (0.08, 0.08, 0.08),
}
"""More colours than the words of the tabletop tasks know; the first ``alternatives`` from ``first_color`` on are in
play."""
CLUTTER = np.array([(x, side * 0.33) for x in (0.22, 0.29, 0.36, 0.43, 0.50) for side in (-1, 1)])
"""Places (10, 2) m beside all that the tasks use, in sight of the front camera: for pebbles that mean nothing."""
DARK, LIT = (0.20, 0.20, 0.20), (1.0, 0.95, 0.45)


@dataclass(frozen=True)
class MemoryConfig:
    """How hard a memory task is."""

    delay: int = 10
    """Control steps between the end of the cue and the moment the arm may act on it."""
    alternatives: int = 3
    """Among how many things, places or numbers the memory must tell."""
    first_color: int = 0
    """Where in the palette the colours begin: with another number, things have other colours."""
    distractors: int = 0
    """Pebbles in colours of the palette that lie beside the task and mean nothing."""

    def __post_init__(self) -> None:
        if self.delay < 0:
            raise InvalidInputError(f"MemoryConfig.delay: {self.delay}, expected 0 or more control steps")
        if not 0 <= self.first_color < len(PALETTE):
            valid = f"0..{len(PALETTE) - 1}"
            raise InvalidInputError(f"MemoryConfig.first_color: {self.first_color}, expected {valid}")
        if not 0 <= self.distractors <= len(CLUTTER):
            raise InvalidInputError(f"MemoryConfig.distractors: {self.distractors}, expected 0..{len(CLUTTER)}")


class MemoryTask(Task):
    """A task whose right choice, :attr:`oracle_cue`, cannot be read from the present observation."""

    defaults: ClassVar[MemoryConfig] = MemoryConfig()
    most: ClassVar[int]
    """Most alternatives; the fewest are two."""
    act_steps: ClassVar[int]
    """Control steps for everything that the arm has to do."""

    def __init__(self, config: MemoryConfig | None = None) -> None:
        super().__init__()
        self.config = config or self.defaults
        self.k = self.config.alternatives
        if not 2 <= self.k <= self.most:
            raise InvalidInputError(f"task {self.name!r}: alternatives={self.k}, expected 2..{self.most}")
        colors, first = list(PALETTE.items()), self.config.first_color
        self.palette: dict[str, Color] = dict(colors[first:] + colors[:first])
        """Colours in the order in which they come into play."""
        self.pebbles = tuple(f"pebble_{i}" for i in range(self.config.distractors))
        scene = self.build_scene()
        props = (*scene.props, *(Prop(name, "pebble") for name in self.pebbles))
        self.scene: SceneConfig = replace(scene, props=props)  # type: ignore[misc]  # depends on the configuration
        self.max_steps: int = self.show_steps + self.config.delay + self.act_steps  # type: ignore[misc]
        self.oracle_cue = 0
        self.deciding = False
        """The cue is gone and the arm may act on it."""
        self.done, self.lost = False, False
        self._script: Iterator[bool] = iter(())

    @property
    def show_steps(self) -> int:
        """Control steps in which the cue is shown while the arm is parked; 0 where it shows as the arm works."""
        return 0

    @property
    def cues(self) -> int:
        """How many cues there are: 0 .. cues - 1, all as likely; a guess is right once in ``cues``."""
        return self.k

    @property
    def kept_colors(self) -> tuple[Color, ...]:
        """Colours that no pebble takes, because the words would then mean the pebble as well."""
        return ()

    @abstractmethod
    def build_scene(self) -> SceneConfig:
        """Return the scene for ``self.k`` alternatives."""

    @abstractmethod
    def script(self, world: MujocoWorld) -> Iterator[bool]:
        """Change the scene step by step; yield PARK or FREE for each control step. All chance was drawn before."""

    @abstractmethod
    def judge(self, world: MujocoWorld) -> None:
        """Set ``done`` or ``lost`` from the present state, as long as no choice has been made."""

    def setup(self, world: MujocoWorld, rng: np.random.Generator, instruction: str = "") -> str:
        """Arrange the table as every task does, and begin the script."""
        words = super().setup(world, rng, instruction)
        self._scatter_pebbles(world, rng)
        self._script = self.script(world)
        self.tick(world)
        return words

    def _scatter_pebbles(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        """Place the distractors. They are drawn after all else, so that a seed gives the same scene with and without
        them."""
        places, colors = rng.permutation(CLUTTER), rng.permutation(list(PALETTE.values()))
        colors = colors[[tuple(color) not in self.kept_colors for color in colors]]
        for i, name in enumerate(self.pebbles):
            spot = places[i] + rng.uniform(-0.01, 0.01, 2)
            world.set_pose(name, upright(spot, 0.0, rng.uniform(0.0, np.pi)))
            world.set_color(name, colors[i % len(colors)])

    def color(self, name: str) -> Color:
        """Return the colour of what is ``name``, unless the colours begin elsewhere in the palette."""
        return list(self.palette.values())[list(PALETTE).index(name)]

    def tick(self, world: MujocoWorld) -> None:
        """Let the script go on by one control step; after its end the arm is free."""
        self.parked = next(self._script, FREE)

    def oracle_success(self, world: MujocoWorld) -> bool:
        return self.done

    # -- words of the scripts ---------------------------------------------------------------------------------------

    def park(self, steps: int) -> Iterator[bool]:
        """Hold the arm for ``steps``."""
        for _ in range(steps):
            yield PARK

    def choose(self, world: MujocoWorld, *, hidden: bool = True) -> Iterator[bool]:
        """Let the arm act until the choice is made; ``hidden`` tells that the cue is no longer in sight."""
        self.deciding = hidden
        while not (self.done or self.lost):
            yield FREE
            self.judge(world)

    def decide(self, right: bool) -> None:
        """Make the choice."""
        self.done, self.lost = right, not right


def put_away(world: MujocoWorld, body: str) -> None:
    """Move ``body`` out of sight."""
    world.set_pose(body, upright(np.zeros(2), AWAY_M))


def touched(world: MujocoWorld, bodies: tuple[str, ...]) -> list[int]:
    """Return which of ``bodies`` the gripper touches, by their places in the tuple."""
    return [i for i, body in enumerate(bodies) if world.oracle_contact(body, world.robot.hand_link)]


def row(count: int, pitch: float) -> np.ndarray:
    """Return ``count`` places (count,) m along y, ``pitch`` m apart, centred."""
    return (np.arange(count) - (count - 1) / 2) * pitch
