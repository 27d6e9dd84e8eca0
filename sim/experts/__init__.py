"""Scripted experts, found by task name: with access to simulator state, and memoryless ones that guess the cue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engram.core.errors import InvalidInputError
from engram.core.registry import split_options
from engram.sim.experts.base import Expert, ExpertConfig, Waypoint
from engram.sim.experts.carry import CarryExpert, PickPlaceExpert, StackExpert
from engram.sim.experts.drawer import DrawerExpert
from engram.sim.experts.memory import MEMORY_EXPERTS, MemoryExpert
from engram.sim.experts.push import PushExpert
from engram.sim.experts.simple import PressExpert, ReachExpert
from engram.sim.tasks import task_class

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld

EXPERTS: dict[str, type[Expert]] = {
    "reach": ReachExpert,
    "push_to_mark": PushExpert,
    "pick_place": PickPlaceExpert,
    "stack": StackExpert,
    "open_drawer": DrawerExpert,
    "press_button": PressExpert,
}
"""Task name -> expert class."""


def make_expert(task: str, world: MujocoWorld, config: ExpertConfig | None = None) -> Expert:
    """Return the expert for ``task`` in ``world``.

    Raises:
        UnknownNameError: there is no such task; lists the valid names.
        InvalidInputError: the task has no expert.
    """
    expert = {**EXPERTS, **MEMORY_EXPERTS}.get(split_options(task)[0]) or task_class(task).expert
    if expert is None:
        raise InvalidInputError(f"task {task!r} has no scripted expert: set its class attribute `expert`")
    return expert(world, config)


class RandomCueExpert:
    """Makes memoryless experts: they draw the cue at random and then act perfectly. A policy without memory cannot do
    better, so their success rate is the baseline of a memory task.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def __call__(self, task: str, world: MujocoWorld) -> Expert:
        """Return an expert for the running episode of ``task``; on a Markovian task it is the usual one."""
        expert = make_expert(task, world)
        if isinstance(expert, MemoryExpert):
            expert.belief = int(self.rng.integers(expert.task.cues))
        return expert


__all__ = [
    "EXPERTS",
    "MEMORY_EXPERTS",
    "CarryExpert",
    "Expert",
    "ExpertConfig",
    "MemoryExpert",
    "RandomCueExpert",
    "Waypoint",
    "make_expert",
]
