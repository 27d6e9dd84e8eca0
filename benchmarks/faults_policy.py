"""A policy without a network for trials of nodes and sensors: it waves, unless it is told to stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from engram.core.contracts import Policy
from engram.core.types import ActionChunk, MemoryTokens, Observation

ROWS, REPLAN = 12, 4
SPEED = 0.5
"""Share of the fastest tool motion."""
STEPS_A_SWING = 8


class Wave(Policy):
    """Moves the tool to and fro along y, and not at all for "stay"."""

    def reset(self, instruction: str, episode: int = 0, seed: int = 0) -> None:
        """Begin an episode."""
        self._speed = 0.0 if instruction == "stay" else SPEED
        self._episode, self._steps, self._stamp_ns = episode, 0, 0

    def observe(self, observation: Observation, memory: MemoryTokens | None = None) -> None:
        """Count the control steps."""
        if observation.stamp_ns != self._stamp_ns:
            self._stamp_ns, self._steps = observation.stamp_ns, self._steps + 1

    def act(self) -> ActionChunk:
        """Return the next tool motions."""
        steps = self._steps - 1 + np.arange(ROWS)
        actions = np.zeros((ROWS, 7))
        actions[:, 1] = np.where(steps // STEPS_A_SWING % 2 == 0, self._speed, -self._speed)
        actions[:, 6] = -1.0
        return ActionChunk(self._stamp_ns, self._episode, "ee_delta", actions, 0.1, REPLAN, self.version)

    def load_weights(self, path: Path, version: str) -> None:
        """Refuse: there are none."""
        raise NotImplementedError("this policy has no weights")

    @property
    def version(self) -> str:
        """Its only version."""
        return "wave"
