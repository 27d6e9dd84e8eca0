"""Experts of the memory tasks: they read the cue from the simulator, or guess it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engram.core.errors import EngramError
from engram.core.types import EE_ACTION_DIM
from engram.sim.experts.base import Expert, ExpertConfig
from engram.sim.tasks.memory import MemoryTask

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld


DEPTH_M = 0.015
"""Fingers aim this far below the top of what they press or touch, so that a policy that stops a few millimetres
short still presses or touches it."""


class MemoryExpert(Expert):
    """Acts as if ``belief`` were the cue; None = the true cue. Rests with an open gripper while the arm is held.

    It has no state of its own: its progress is read from the task, as poses are read from the world.
    """

    def __init__(self, world: MujocoWorld, config: ExpertConfig | None = None, belief: int | None = None) -> None:
        super().__init__(world, config)
        self.belief = belief

    @property
    def task(self) -> MemoryTask:
        """The running task."""
        if not isinstance(self.world.task, MemoryTask):
            raise EngramError("no memory task is running: reset the world with one first")
        return self.world.task

    @property
    def cue(self) -> int:
        """The cue that this expert acts on once it has to decide; until then the true cue is visible."""
        return self.task.oracle_cue if self.belief is None or not self.task.deciding else self.belief

    def act(self) -> np.ndarray:
        """Return the action (7,) in [-1, 1] for the present state."""
        if self.task.parked or self.task.done or self.task.lost:
            return np.array([0.0] * (EE_ACTION_DIM - 1) + [-1.0])
        return super().act()
