"""Event boundaries: surprise above a running threshold (EM-LLM, Fountas et al. 2024).

Surprise is the negative log probability, in nats, of what changed in the scene under a model of what has been
changing: how many objects change a step, in which way, and of which class. A carried cube stops being surprising
after a few steps; another class of object that begins to move is surprising again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import lgamma, log

import numpy as np

from engram.core.errors import InvalidInputError
from engram.core.types import EVENT_KINDS, GraphEvent


@dataclass(frozen=True)
class SurpriseConfig:
    """Threshold mean + gamma x std over a window, and how fast the model forgets."""

    gamma: float = 1.5
    """Standard deviations above the mean of the window."""
    window: int = 64
    """Steps whose surprise sets the threshold."""
    warm_up: int = 8
    """No boundary before so many steps are known."""
    forget: float = 0.95
    """Share of the evidence that is kept from step to step: about 20 steps count."""

    def __post_init__(self) -> None:
        if not 0.0 < self.forget < 1.0:
            raise InvalidInputError(f"SurpriseConfig.forget: {self.forget}, expected between 0 and 1")


class ChangeModel:
    """Predicts the changes of the next step: a Gamma-Poisson count for each kind, a Dirichlet over the classes."""

    def __init__(self, forget: float) -> None:
        self._forget = forget
        self._alpha = np.full(len(EVENT_KINDS), 0.1)  # prior: one change of a kind in ten steps
        self._beta = 1.0
        self._labels: dict[str, float] = {}

    def surprise(self, events: Sequence[GraphEvent]) -> float:
        """Return -log P(events) [nats]."""
        counts = _counts(events)
        total = 0.0
        for alpha, k in zip(self._alpha, counts, strict=True):  # negative binomial predictive
            share = self._beta / (self._beta + 1)
            total -= lgamma(k + alpha) - lgamma(alpha) - lgamma(k + 1) + alpha * log(share) + k * log(1 - share)
        mass = sum(self._labels.values()) + 1.0
        for event in events:  # one pseudo-count stands for all classes that are not known yet
            total -= log((self._labels.get(event.label, 0.0) + 1 / (len(self._labels) + 1)) / mass)
        return total

    def learn(self, events: Sequence[GraphEvent]) -> None:
        """Update the model with one step; older steps decay."""
        keep = self._forget
        self._alpha = 0.1 + keep * (self._alpha - 0.1) + _counts(events)
        self._beta = 1.0 + keep * (self._beta - 1.0) + 1.0
        faded = {label: keep * weight for label, weight in self._labels.items()}
        self._labels = {label: weight for label, weight in faded.items() if weight > 1e-3}
        for event in events:
            self._labels[event.label] = self._labels.get(event.label, 0.0) + 1.0


class Boundaries:
    """Tells at each step whether an event ended there."""

    def __init__(self, config: SurpriseConfig | None = None) -> None:
        self.config = config or SurpriseConfig()
        self._model = ChangeModel(self.config.forget)
        self._window: deque[float] = deque(maxlen=self.config.window)

    def step(self, events: Sequence[GraphEvent]) -> tuple[float, bool]:
        """Return the surprise [nats] of this step and whether it begins a new event."""
        surprise = self._model.surprise(events)
        self._model.learn(events)
        boundary = len(self._window) >= self.config.warm_up and surprise > self.threshold()
        self._window.append(surprise)
        return surprise, boundary

    def threshold(self) -> float:
        """Return mean + gamma x standard deviation of the window."""
        values = np.array(self._window)
        return float(values.mean() + self.config.gamma * values.std())


def _counts(events: Sequence[GraphEvent]) -> np.ndarray:
    counts = np.zeros(len(EVENT_KINDS))
    for event in events:
        counts[EVENT_KINDS.index(event.kind)] += 1
    return counts
