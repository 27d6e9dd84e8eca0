"""A scripted expert that takes over as a person would: for practice that is helped, and for tests of it.

It knows the simulator's state (``oracle``), and stands for a person who watches: it takes over from a policy that does
not get done, finishes the task, and does so only in a share of all control steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engram.core.errors import InvalidInputError
from engram.core.types import HumanAction, Observation
from engram.sim.experts import Expert, ExpertConfig, make_expert
from engram.sim.tasks import get_task
from engram.sim.world import MujocoWorld

WHO = "oracle"
CALM = ExpertConfig(gain=0.3, speed=0.5, turn_speed=0.3)
"""As a person moves who sees what came of it; at its usual speed an expert swings where commands come late."""


@dataclass(frozen=True)
class HelpConfig:
    """When the expert takes over, for how long at most, and how well it acts."""

    share: float = 0.1
    """Most control steps of all that it drives, as a share of those until then."""
    patience: float = 0.4
    """It takes over after so much of an episode's time limit, or not at all: only where it may drive until the end."""
    noise: float = 0.0
    """Standard deviation of what is added to its motions, in action units: a clumsy person."""

    def __post_init__(self) -> None:
        for name in ("share", "patience"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InvalidInputError(f"HelpConfig.{name}: {getattr(self, name)}, expected 0..1")
        if not 0.0 <= self.noise < np.inf:
            raise InvalidInputError(f"HelpConfig.noise: {self.noise}, expected 0 or more")


class OracleHelper:
    """Takes over ``world``'s robot late in an episode; give it to a :class:`engram.runtime.loop.Runtime` as its human.

    Args:
        world: whose state it knows.
        config: when it takes over.
        steps: control steps until now, for practice that goes on.
        helped: those of them that it drove.
    """

    def __init__(self, world: MujocoWorld, config: HelpConfig, steps: int = 0, helped: int = 0) -> None:
        self.config, self.steps, self.helped = config, steps, helped
        self._world = world
        self._expert: Expert | None = None

    def begin(self, task: str, seed: int) -> None:
        """Begin an episode of ``task``; ``seed`` draws its noise."""
        self._task, self._step = task, 0
        self._expert = None
        self._rng = np.random.default_rng(seed)

    def __call__(self, observation: Observation) -> HumanAction | None:
        """Return what the expert does at this control step; None: the policy drives."""
        self._step += 1
        self.steps += 1
        limit = get_task(self._task).max_steps
        if self._expert is None:
            wanted = self._step == round(self.config.patience * limit) + 1
            to_come = limit - self._step
            if not wanted or self.helped + to_come + 1 > self.config.share * (self.steps + to_come):
                return None
            self._expert = make_expert(self._task, self._world, CALM)
            self._expert.reset()
        self.helped += 1
        action = self._expert.act()
        action[:6] = np.clip(action[:6] + self.config.noise * self._rng.normal(size=6), -1.0, 1.0)
        return HumanAction(observation.stamp_ns, WHO, True, "ee_delta", action)
