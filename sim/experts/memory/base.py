"""Experts of the memory tasks: they know what should be remembered, or guess it."""

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
"""Fingers aim so far below the top of what they press or touch: who comes a few millimetres short of that, as a policy
does, has pressed or touched it, too."""


class MemoryExpert(Expert):
    """Acts as if ``belief`` were the cue; None = the truth. Rests with an open gripper while the arm is held.

    What it has done so far it reads off the task, as it reads poses off the world: it has no state of its own.
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
        """What this expert takes for the cue once it has to decide; until then the truth is in sight."""
        return self.task.oracle_cue if self.belief is None or not self.task.deciding else self.belief

    def act(self) -> np.ndarray:
        """Return the action (7,) in [-1, 1] for the present state."""
        if self.task.parked or self.task.done or self.task.lost:
            return np.array([0.0] * (EE_ACTION_DIM - 1) + [-1.0])
        return super().act()
