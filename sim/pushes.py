"""Disturbances: the object that the robot approaches is pushed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engram.core.contracts import StepHook
from engram.core.errors import InvalidInputError
from engram.core.types import EpisodeResult, JointCommand, Observation, OracleOutcome
from engram.sim.tasks import SUITES, get_task
from engram.sim.world import MujocoWorld


@dataclass(frozen=True)
class PushConfig:
    """When a push comes, and how strong it is; both are drawn evenly."""

    steps: tuple[int, int] = (2, 4)
    """The push comes between the first and the last of these control steps, while the robot approaches."""
    speed_m_s: tuple[float, float] = (1.1, 1.1)
    """Least and greatest speed that the object is given: at 1.1 m/s a cube slides 6 cm; one held is not moved."""


TARGET = "color"
"""The slot of a task's wordings that names the object to push."""


class Push:
    """Gives the named object a horizontal speed once; step, direction and speed are drawn from ``seed``."""

    def __init__(self, world: MujocoWorld, seed: int, config: PushConfig | None = None) -> None:
        config = config or PushConfig()
        self._world, self._done = world, 0
        rng = np.random.default_rng([seed, 4])
        self.step = int(rng.integers(*config.steps, endpoint=True))
        angle = rng.uniform(0, 2 * np.pi)
        speed = rng.uniform(*config.speed_m_s) * np.sqrt(world.scale)  # what slides goes as far as the table is large
        self.velocity = speed * np.array([np.cos(angle), np.sin(angle)])  # (2,) m/s, base_link x and y

    def after_step(self) -> None:
        """Push after the step that was drawn; the observation of the step after the next shows what came of it."""
        self._done += 1
        task, model = self._world.task, self._world.model
        if self._done == self.step and task is not None:
            joint = int(model.body(task.targets[TARGET]).jntadr[0])
            first = int(model.jnt_dofadr[joint])
            self._world.data.qvel[first : first + 2] = self.velocity


class PushedWorkcell(MujocoWorld):
    """The tabletop in which somebody pushes, once an episode, what the robot is after; for the nodes, by its name
    ``engram.sim.pushes:PushedWorkcell``. Tasks whose words name nothing that can be pushed run undisturbed."""

    _push: Push | None = None

    def reset(self, task: str, seed: int, instruction: str = "") -> Observation:
        """Begin an episode; the push is that of its seed."""
        seen = super().reset(task, seed, instruction)
        self._push = Push(self, seed) if pushable(task) else None
        return seen

    def step(self, command: JointCommand) -> Observation:
        """Carry out a command; push after it, if it is time."""
        seen = super().step(command)
        if self._push is not None:
            self._push.after_step()
        return seen


class PushedRunner:
    """Runs each episode of ``run`` with one push of the object that the words name."""

    def __init__(self, run: Callable[..., EpisodeResult], world: MujocoWorld, tasks: Sequence[str]) -> None:
        """Raises InvalidInputError with the tasks that can be pushed, if one of ``tasks`` is none."""
        for task in tasks:
            if not pushable(task):
                can = ", ".join(name for name in SUITES["all"] if pushable(name))
                raise InvalidInputError(f"task {task!r}: its words name nothing that can be pushed; valid: {can}")
        self._run, self._world = run, world

    def __call__(
        self, task: str, seed: int, instruction: str = "", *, on_step: StepHook | None = None
    ) -> EpisodeResult:
        """Return what came of one episode."""
        push = Push(self._world, seed)

        def each(seen: Observation, command: JointCommand, outcome: OracleOutcome) -> None:
            push.after_step()
            if on_step is not None:
                on_step(seen, command, outcome)

        return self._run(task, seed, instruction, on_step=each)


def pushable(task: str) -> bool:
    """Tell whether the words of ``task`` name a cube that lies free."""
    found = get_task(task)
    return TARGET in found.slots() and bool(found.colored) and set(found.colored) <= set(found.scene.cubes)
