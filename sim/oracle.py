"""The state oracle: the upper bound for a policy that replans as often."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from engram.core.contracts import Policy
from engram.core.errors import EngramError, WeightsError
from engram.core.pipeline import CommandPipeline
from engram.core.types import ActionChunk, MemoryTokens, Observation
from engram.sim.experts import make_expert
from engram.sim.tasks import with_options
from engram.sim.tasks.memory import MemoryTask
from engram.sim.world import MujocoWorld, WorldConfig

ORACLE_STATE = "oracle_state"


class PrivilegedPolicy(Policy):
    """Replans when a policy would, and commits to whole action chunks, but acts on simulator state.

    A twin of ``world``, without cameras, is at the same step of the same episode. There the scripted expert, which
    knows the cue, acts for ``execute_steps`` steps; these actions are the chunk. What it fails at is impossible when
    replanning this seldom. It needs a world that is deterministic given the seed, and an episode in which nothing else
    acts.
    """

    def __init__(self, world: MujocoWorld, execute_steps: int = 4) -> None:
        self.execute_steps = execute_steps
        self._world = world
        self._twin = MujocoWorld(WorldConfig(profile="none"), world.robot)
        self._pipeline = CommandPipeline(self._twin.kinematics, self._twin.robot)
        self._observation: Observation | None = None
        self._chunk: ActionChunk | None = None

    def reset(self, instruction: str, episode: int = 0, seed: int = 0) -> None:
        """Begin the episode that ``world`` has begun; ``seed`` is the scene's, as :class:`Runtime` hands it on."""
        task = self._world.task
        if task is None:
            raise EngramError("PrivilegedPolicy: no task is running: reset the world first")
        name = with_options(task.name, **asdict(task.config)) if isinstance(task, MemoryTask) else task.name
        self._twin.reset(name, seed, instruction)
        self._pipeline.reset()
        self._expert = make_expert(name, self._twin)
        self._expert.reset()
        self._episode, self._observation, self._chunk = episode, None, None

    def observe(self, observation: Observation, memory: MemoryTokens | None = None) -> None:
        """Take in one control step; only its time and joints are looked at."""
        self._observation = observation

    def act(self) -> ActionChunk:
        """Return what the expert does in the next steps.

        Raises:
            EngramError: nothing was observed since reset, or the twin is not where the robot is.
        """
        seen, twin = self._observation, self._twin
        if seen is None:
            raise EngramError("PrivilegedPolicy.act: nothing observed since reset")
        if self._chunk is not None and self._chunk.stamp_ns == seen.stamp_ns:
            return self._chunk
        if not np.array_equal(seen.joints.positions, twin.joint_state().positions):
            raise EngramError("PrivilegedPolicy.act: the twin is not where the robot is; did that do as it was told?")
        actions = []
        for _ in range(self.execute_steps):
            actions.append(self._expert.act())
            twin.advance(self._pipeline.step_action(twin.joint_state(), actions[-1]).command)
        dt_s, n = twin.config.control_dt_s, self.execute_steps
        self._chunk = ActionChunk(seen.stamp_ns, self._episode, "ee_delta", np.array(actions), dt_s, n, self.version)
        return self._chunk

    def load_weights(self, path: Path, version: str) -> None:
        """It has none."""
        raise WeightsError(f"{path}: a state oracle has no weights")

    @property
    def version(self) -> str:
        """Its name."""
        return ORACLE_STATE
