"""A policy that drives by turns while the expert tells what it would do: demonstrations of where the policy errs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engram.core.contracts import Policy
from engram.core.errors import InvalidInputError
from engram.core.types import Observation


@dataclass(frozen=True)
class TurnConfig:
    """How long each of the two drives at a time."""

    policy_steps: tuple[int, int] = (8, 30)
    """Shortest and longest turn of the policy [control steps]."""
    expert_steps: tuple[int, int] = (5, 20)
    """Shortest and longest turn of the expert, which brings back what went astray [control steps]."""


class PolicyTurns:
    """Executes a policy's actions for a while, then the expert's own, and so on; every step is the expert's to label.

    Ross, Gordon and Bagnell, "A Reduction of Imitation Learning and Structured Prediction to No-Regret Online
    Learning" (DAgger, 2011); by turns, as in HG-DAgger (Kelly et al., 2019), so that an episode comes to its end.
    """

    def __init__(self, policy: Policy, config: TurnConfig | None = None) -> None:
        self.policy, self.config = policy, config or TurnConfig()

    def begin(self, instruction: str, seed: int) -> None:
        """Begin an episode; who begins and how long the turns are follows from ``seed``."""
        self._rng = np.random.default_rng((seed, 2))
        self._drives = bool(self._rng.integers(2))
        self._left = self._turn()
        self._rows: list[np.ndarray] = []
        self.policy.reset(instruction, seed, seed)

    def drive(self, observation: Observation, action: np.ndarray) -> np.ndarray:
        """Return the action (7,) to execute where the expert would do ``action`` (7,).

        Raises:
            InvalidInputError: the policy's actions are not of the expert's kind.
        """
        self.policy.observe(observation)
        if self._left == 0:
            self._drives = not self._drives
            self._left, self._rows = self._turn(), []
        self._left -= 1
        if not self._drives:
            return action
        if not self._rows:
            chunk = self.policy.act()
            if chunk.space != "ee_delta":
                raise InvalidInputError(f"{self.policy.version} drives in {chunk.space!r}, expected 'ee_delta'")
            self._rows = list(chunk.actions[: chunk.execute_steps])
        return self._rows.pop(0)

    def _turn(self) -> int:
        shortest, longest = self.config.policy_steps if self._drives else self.config.expert_steps
        return int(self._rng.integers(shortest, longest + 1))
