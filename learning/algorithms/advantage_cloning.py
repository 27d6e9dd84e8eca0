"""Advantage-weighted cloning: what was done is imitated the more, the better the critics deem it."""

from __future__ import annotations

import torch
from torch import Tensor

from engram.learning.algorithms.value_learning import Steps, ValueLearning

TEMPERATURE = 0.02
"""An advantage so great makes a step count e times as much."""
MOST = 20.0
"""So many times as much a step counts at most."""


class AdvantageCloning(ValueLearning):
    """Imitates executed chunks, of failures too, with exp(advantage / ``TEMPERATURE``) as their weight.

    As AWR does (Peng et al. 2019, arXiv:1910.00177).
    """

    def better(self, steps: Steps, draw: Tensor) -> tuple[Tensor, Tensor]:
        """Return the executed chunks, weighted."""
        departure = self.departure(steps.action, steps)
        weight = torch.exp(self.critics.leads(self.way(steps), departure) / TEMPERATURE).clamp(max=MOST)
        return steps.action, weight * steps.known
