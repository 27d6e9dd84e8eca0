"""The base class of tasks: a scene, instructions, a random arrangement and the simulator's verdict.

A task object belongs to one world and one episode at a time: ``setup`` fixes which bodies the words mean, the
``oracle_`` methods judge by them. The arrangement is drawn from the seed before the words are, so the same seed with
other words is the same table with another goal.
"""

from __future__ import annotations

import re
import string
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from engram.core.errors import InvalidInputError
from engram.core.robot import FULL_SIZE_TABLE, RobotConfig
from engram.sim.scene import SceneConfig
from engram.sim.tasks.placement import COLORS

if TYPE_CHECKING:
    from engram.sim.experts.base import Expert
    from engram.sim.world import MujocoWorld


class Task(ABC):
    """One kind of job on the table; ``{color}``-like slots of the wordings name coloured bodies."""

    name: ClassVar[str]
    """Of a task of your own :func:`get_task` sets it to ``package.module:attribute``, which every process can load."""
    scene: ClassVar[SceneConfig]
    max_steps: ClassVar[int]
    """Control steps after which the episode is truncated."""
    colored: ClassVar[tuple[str, ...]] = ()
    """Agents that get a colour each, no two the same; the slots choose among them."""
    instructions: ClassVar[tuple[str, ...]]
    """Wordings that ``setup`` draws from."""
    held_out_instructions: ClassVar[tuple[str, ...]] = ()
    """Wordings that are understood but never drawn: for testing a policy on new wordings."""
    slot_words: ClassVar[tuple[str, ...]] = tuple(COLORS)
    """What may stand in a slot."""
    synonyms: ClassVar[Mapping[str, str]] = {}
    """Further words for a slot, understood but never said, with the one of ``slot_words`` that they mean."""
    expert: ClassVar[type[Expert] | None] = None
    """Scripted expert of a task of your own, made with the world; those of the shipped tasks are in
    :mod:`engram.sim.experts`."""

    parked: bool = False
    """Whether the cell brings the arm home and holds it there, ignoring commands, while a cue is shown or hidden."""

    scales: ClassVar[bool] = False
    """Works on a table of any size: places come from ``place(..., world.robot.table)`` and lengths are multiplied by
    ``world.scale``. Other tasks are refused for a robot whose table is not of full size."""

    lost: bool = False
    """A choice was made that is final, and wrong."""

    def __init__(self) -> None:
        self.targets: dict[str, str] = {}  # slot -> body that the words mean
        self.colors: dict[str, str] = {}  # body -> the word for it in a slot: its colour
        self.template = ""  # the wording in use

    def setup(self, world: MujocoWorld, rng: np.random.Generator, instruction: str = "") -> str:
        """Arrange the table from ``rng`` and return the instruction.

        Args:
            world: freshly reset, with this task's scene.
            rng: every draw comes from it, and the same number of draws with and without ``instruction``.
            instruction: one of the wordings with its slots filled in; empty = drawn. What is not on the table takes
                the place of what would have been drawn.

        Raises:
            InvalidInputError: ``instruction`` matches no wording, or asks for what cannot be.
        """
        given = self.parse(instruction) if instruction else None
        self.arrange(world, rng)
        drawn = self.draw_words(rng)
        self.template = self.instructions[int(rng.integers(len(self.instructions)))]
        self.targets = dict(zip(self.slots(), drawn, strict=False))
        if given is not None:
            self.template, asked = given
            self.targets = self.bind(asked, drawn)
        self.paint(world)
        return instruction or self.say(self.targets)

    def draw_words(self, rng: np.random.Generator) -> list[str]:
        """Draw the word for each body; return the bodies in the order in which they fill the slots."""
        palette = rng.permutation(sorted(COLORS))
        self.colors = {body: str(color) for body, color in zip(self.colored, palette, strict=False)}
        return [str(body) for body in rng.permutation(self.colored)] if self.colored else []

    def paint(self, world: MujocoWorld) -> None:
        """Give each body the colour that the words call it by."""
        for body, color in self.colors.items():
            world.set_color(body, COLORS[color])

    def scene_for(self, robot: RobotConfig) -> SceneConfig:
        """Return what stands on the table when ``robot`` does the task.

        Raises:
            InvalidInputError: the task is laid out for a table of full size only, which this robot does not have.
        """
        if not self.scales and robot.table != FULL_SIZE_TABLE:
            raise InvalidInputError(
                f"task {self.name!r} is laid out at full size only, and robot {robot.name!r} has a table of scale "
                f"{robot.table.scale:g}; tasks that scale say scales = True"
            )
        return self.scene

    @abstractmethod
    def arrange(self, world: MujocoWorld, rng: np.random.Generator) -> None:
        """Place every body that may move, without overlap."""

    def tick(self, world: MujocoWorld) -> None:  # noqa: B027 (a task with a script overrides it)
        """Advance the scene's script; called after each control step. Without a script, nothing happens."""

    @abstractmethod
    def oracle_success(self, world: MujocoWorld) -> bool:
        """Tell whether the job is done now."""

    def oracle_progress(self, world: MujocoWorld) -> float:
        """Return how near the present state is to success, 0 to 1.

        The gate asks it of an episode that did not succeed. A task of your own need not tell more than this.
        """
        return float(self.oracle_success(world))

    def oracle_reward(self, world: MujocoWorld) -> float:
        """Return the sparse reward of the present state: 1 when done, else 0."""
        return 1.0 if self.oracle_success(world) else 0.0

    @classmethod
    def slots(cls) -> tuple[str, ...]:
        """Return the names of the slots of the wordings, in a fixed order."""
        return tuple(sorted({f for t in cls.instructions for _, f, _, _ in string.Formatter().parse(t) if f}))

    @classmethod
    def parse(cls, instruction: str) -> tuple[str, dict[str, str]]:
        """Return the wording an instruction fits and slot -> word; case, spaces and a full stop don't matter.

        Raises:
            InvalidInputError: with the valid wordings and the words for their slots.
        """
        words = _plain(instruction).casefold()
        meant = {word.casefold(): word for word in cls.slot_words}
        meant |= {synonym.casefold(): word for synonym, word in cls.synonyms.items()}
        for template in (*cls.instructions, *cls.held_out_instructions):
            match = re.fullmatch(_pattern(template, meant), words)
            if match:
                asked = {slot: meant[word] for slot, word in match.groupdict().items()}
                return template, cls._different(instruction, asked)
        wordings = "; ".join((*cls.instructions, *cls.held_out_instructions))
        raise InvalidInputError(
            f"task {cls._called()!r}: instruction {instruction!r} fits no wording; valid: {wordings}"
            + (f" with {', '.join(cls.slot_words)}" if cls.slots() else "")
        )

    def say(self, targets: dict[str, str], template: str = "") -> str:
        """Return ``template`` (empty = the present wording) with the words for ``targets`` (slot -> body)."""
        return (template or self.template).format(**{slot: self.colors[body] for slot, body in targets.items()})

    def held_out_instruction(self, index: int) -> str:
        """Return the present goal in a held-out wording, ``index`` modulo their number.

        Raises:
            InvalidInputError: the task has no held-out wordings.
        """
        if not self.held_out_instructions:
            raise InvalidInputError(f"task {self.name!r} has no held_out_instructions")
        return self.say(self.targets, self.held_out_instructions[index % len(self.held_out_instructions)])

    def swapped_instruction(self) -> str:
        """Return the present wording about another body that is on the table.

        Raises:
            InvalidInputError: the words name no body that could be another.
        """
        spare = [body for body in self.colored if body not in self.targets.values()]
        if "color" not in self.targets or not spare:
            raise InvalidInputError(f"task {self.name!r}: nothing to swap in {self.template!r}")
        return self.say({**self.targets, "color": spare[0]})

    @classmethod
    def _called(cls) -> str:
        """Return the name for messages; a task of your own need not have one."""
        return getattr(cls, "name", cls.__name__)

    @classmethod
    def _different(cls, instruction: str, asked: dict[str, str]) -> dict[str, str]:
        if len(set(asked.values())) < len(asked):
            raise InvalidInputError(f"task {cls._called()!r}: instruction {instruction!r} names one thing twice")
        return asked

    def bind(self, asked: dict[str, str], drawn: list[str]) -> dict[str, str]:
        """Return slot -> body for slot -> colour, painting a drawn body where a colour is not on the table."""
        body_of = {color: body for body, color in self.colors.items()}
        targets = {slot: body_of[color] for slot, color in asked.items() if color in body_of}
        for slot, color in asked.items():
            if slot not in targets:
                targets[slot] = next(body for body in drawn if body not in targets.values())
                self.colors[targets[slot]] = color
        return targets


def _plain(words: str) -> str:
    return " ".join(words.split()).rstrip(". ")


def _pattern(template: str, words: Iterable[str]) -> str:
    """Return the regular expression for ``template`` with any of ``words`` in its slots, all in lower case."""
    fills, parts = "|".join(map(re.escape, words)), string.Formatter().parse(_plain(template))
    return "".join(
        re.escape(literal.casefold()) + (f"(?P<{slot}>{fills})" if slot else "") for literal, slot, _, _ in parts
    )
