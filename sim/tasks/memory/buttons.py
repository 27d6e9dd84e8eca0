"""Press in the order or as often as was shown: SeqPushButtons, CountPresses, StopCube."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from engram.sim.props import BLOCK_HALF_M, Prop
from engram.sim.scene import BUTTON_TRAVEL_M, SceneConfig
from engram.sim.tasks.memory.base import DARK, LIT, MemoryConfig, MemoryTask, row
from engram.sim.tasks.placement import upright
from engram.sim.tasks.press_button import PRESSED_M

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld

FLASH_STEPS, PAUSE_STEPS, LAMP_STEPS = 3, 2, 6
RELEASED_M = 0.002
"""A button counts again once it has come up to here."""
DWELL_STEPS = 2
"""A press is over when the button was all the way down for so many control steps; it counts as soon as it is half-way.
"""
RISEN_M = 0.10
"""The tool is clear of the buttons at this height above the table."""
SWEEP_STEPS, WAIT_STEPS = 16, 14
"""One pass of the sliding cube over its way, and its rest before the first [control steps]."""
SWEEP_HALF_M, ON_MARK_M = 0.16, 0.045


class ButtonTask(MemoryTask):
    """Counts presses: one is when a button goes down that was up."""

    def __init__(self, config: MemoryConfig | None = None) -> None:
        super().__init__(config)
        self.down: set[str] = set()
        self.pressing = ""
        """The button whose press counts, until it was all the way down for ``DWELL_STEPS``, or is up again."""
        self._dwelt = 0
        self.leaving = ""
        """The button pressed before, until the fingers have risen clear of it."""

    def newly_pressed(self, world: MujocoWorld) -> list[str]:
        """Return the buttons that went down since the last call."""
        travel = {name: world.oracle_joint(name) for name in self.scene.buttons}
        self.down = {name for name in self.down if travel[name] > RELEASED_M}
        new = [name for name, way in travel.items() if way >= PRESSED_M and name not in self.down]
        self.down.update(new)
        if new:
            self.pressing, self._dwelt = new[-1], 0
        if self.pressing:
            self._dwelt += travel[self.pressing] >= BUTTON_TRAVEL_M
        if self.pressing and (self._dwelt == DWELL_STEPS or travel[self.pressing] <= RELEASED_M):
            self.leaving, self.pressing = self.pressing, ""
        elif world.tool_pose().position[2] > RISEN_M:
            self.leaving = ""
        return new


class SeqPushButtons(ButtonTask):
    """The buttons light up one after the other; press them all in the same order."""

    name: ClassVar[str] = "seq_push_buttons"
    most: ClassVar[int] = 4
    act_steps: ClassVar[int] = 110
    instructions: ClassVar[tuple[str, ...]] = (
        "press the buttons in the order in which they lit up",
        "push the buttons in the sequence that was shown",
        "repeat the sequence of the lights on the buttons",
        "press all buttons in the order of their flashes",
        "play back the sequence by pressing the buttons",
        "press the buttons one after the other as they flashed",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "copy the order of the lights with the buttons",
        "which button lit up first, which next? press them like that",
    )

    def __init__(self, config: MemoryConfig | None = None) -> None:
        super().__init__(config)
        self.pressed = 0
        """How many buttons were pressed, all in the right order so far."""

    @property
    def show_steps(self) -> int:
        return self.k * (FLASH_STEPS + PAUSE_STEPS)

    @property
    def cues(self) -> int:
        return math.factorial(self.k)

    def order(self, cue: int) -> tuple[str, ...]:
        """Return the buttons in the order that ``cue`` means."""
        return list(itertools.permutations(self.scene.buttons))[cue]

    def build_scene(self) -> SceneConfig:
        return SceneConfig(buttons=tuple(f"button_{i}" for i in range(self.k)))

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        self.oracle_cue = int(rng.integers(self.cues))
        for body, y in zip(self.scene.buttons, row(self.k, 0.13), strict=True):
            xy = np.array([0.52, y]) + rng.uniform(-0.02, 0.02, 2)
            world.set_pose(body, upright(xy, world.oracle_pose(body).position[2]))

    def script(self, world: MujocoWorld) -> Iterator[bool]:
        for body in self.scene.buttons:
            world.set_color(body, DARK)
        for body in self.order(self.oracle_cue):
            world.set_color(body, LIT)
            yield from self.park(FLASH_STEPS)
            world.set_color(body, DARK)
            yield from self.park(PAUSE_STEPS)
        yield from self.park(self.config.delay)
        yield from self.choose(world)

    def judge(self, world: MujocoWorld) -> None:
        for body in self.newly_pressed(world):
            if body != self.order(self.oracle_cue)[self.pressed]:
                return self.decide(False)
            self.pressed += 1
            if self.pressed == self.k:
                return self.decide(True)


class LampTask(ButtonTask):
    """A row of lamps shows a number from 1 to ``alternatives``, which is the cue plus 1, and goes dark."""

    @property
    def show_steps(self) -> int:
        return LAMP_STEPS

    @property
    def lamps(self) -> tuple[str, ...]:
        """Agents of the lamps, as many as there are alternatives."""
        return tuple(f"lamp_{i}" for i in range(self.k))

    def show_number(self, world: MujocoWorld, x: float) -> Iterator[bool]:
        """Light as many lamps as the number says, then darken them and wait for the delay."""
        for body, y in zip(self.lamps, row(self.k, 0.06), strict=True):
            world.set_pose(body, upright(np.array([x, y]), 0.0))
        for body in self.lamps[: self.oracle_cue + 1]:
            world.set_color(body, LIT)
        yield from self.park(LAMP_STEPS)
        for body in self.lamps:
            world.set_color(body, DARK)
        yield from self.park(self.config.delay)


class CountPresses(LampTask):
    """Press the red button as often as lamps were lit, then the green one, which ends the counting."""

    name: ClassVar[str] = "count_presses"
    most: ClassVar[int] = 6
    act_steps: ClassVar[int] = 110
    instructions: ClassVar[tuple[str, ...]] = (
        "press the red button once for each lamp, then the green button",
        "push the red button as often as lamps were lit and finish with green",
        "count the lamps, press red that many times, then press green",
        "press red as many times as there were lights, then green",
        "one press of the red button for every lit lamp, green when you are done",
        "give the red button as many presses as lamps were on, then hit green",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "how many lamps were lit? press red so many times and then green",
        "tap red once per lamp and confirm with green",
    )

    def __init__(self, config: MemoryConfig | None = None) -> None:
        super().__init__(config)
        self.presses = 0
        """Of the red button."""

    def build_scene(self) -> SceneConfig:
        return SceneConfig(buttons=("count", "finish"), props=tuple(Prop(name, "lamp") for name in self.lamps))

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        self.oracle_cue = int(rng.integers(self.k))
        for body, y in zip(self.scene.buttons, (-0.08, 0.08), strict=True):
            xy = np.array([0.50, y]) + rng.uniform(-0.02, 0.02, 2)
            world.set_pose(body, upright(xy, world.oracle_pose(body).position[2]))

    def script(self, world: MujocoWorld) -> Iterator[bool]:
        world.set_color("count", (0.85, 0.10, 0.10))
        world.set_color("finish", (0.10, 0.65, 0.20))
        yield from self.show_number(world, 0.68)
        yield from self.choose(world)

    def judge(self, world: MujocoWorld) -> None:
        for body in self.newly_pressed(world):
            if body == "finish":
                return self.decide(self.presses == self.oracle_cue + 1)
            self.presses += 1


class StopCube(LampTask):
    """A cube slides to and fro over a mark; press the button when it is on the mark for the n-th time."""

    name: ClassVar[str] = "stop_cube"
    most: ClassVar[int] = 6
    instructions: ClassVar[tuple[str, ...]] = (
        "stop the cube on the mark on the pass that the lamps showed",
        "press the button when the cube is on the mark for the shown number of times",
        "count the passes and stop the cube on the mark at the right one",
        "let the cube pass as the lamps said and stop it on the mark",
        "stop the sliding cube on the target at the pass you were shown",
        "hit the button on the right pass so that the cube rests on the mark",
    )
    held_out_instructions: ClassVar[tuple[str, ...]] = (
        "halt the cube over the mark on the pass given by the lamps",
        "press at the pass the lamps counted, with the cube on the target",
    )

    def __init__(self, config: MemoryConfig | None = None) -> None:
        super().__init__(config)
        self.clock = -WAIT_STEPS
        """Control steps since the cube began to slide."""

    @property
    def act_steps(self) -> int:  # type: ignore[override]  # as long as the passes take
        return WAIT_STEPS + SWEEP_STEPS * self.k + 5

    def build_scene(self) -> SceneConfig:
        props = (Prop("slider", "block"), Prop("target", "patch"), *(Prop(name, "lamp") for name in self.lamps))
        return SceneConfig(buttons=("stop",), props=props)

    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        self.oracle_cue = int(rng.integers(self.k))
        xy = np.array([0.46, 0.0]) + rng.uniform((-0.02, -0.08), (0.02, 0.08))
        world.set_pose("stop", upright(xy, world.oracle_pose("stop").position[2]))
        self.target_xy = np.array([0.61, 0.0]) + rng.uniform((-0.01, -0.03), (0.01, 0.03))

    def oracle_passing(self) -> tuple[int, float]:
        """Return which pass it is, from 0, and how far the cube is from the mark [m, along y]."""
        number, phase = divmod(max(self.clock, 0), SWEEP_STEPS)
        offset = SWEEP_HALF_M * (2 * phase / SWEEP_STEPS - 1)
        return number, offset if number % 2 == 0 else -offset

    def script(self, world: MujocoWorld) -> Iterator[bool]:
        world.set_color("stop", (0.85, 0.10, 0.10))
        world.set_color("slider", (0.10, 0.30, 0.90))
        world.set_pose("target", upright(self.target_xy, 0.0))
        self._slide(world)
        yield from self.show_number(world, 0.72)
        yield from self.choose(world)

    def judge(self, world: MujocoWorld) -> None:
        number, offset = self.oracle_passing()
        if self.newly_pressed(world):
            return self.decide(number == self.oracle_cue and abs(offset) <= ON_MARK_M)
        self.clock += 1
        self._slide(world)
        if self.oracle_passing()[0] == self.k:  # the last pass is over
            self.decide(False)

    def _slide(self, world: MujocoWorld) -> None:
        offset = self.oracle_passing()[1]
        world.set_pose("slider", upright(self.target_xy + np.array([0.0, offset]), BLOCK_HALF_M))
