"""Noise steering: a small network chooses the noise from which the policy's flow begins (DSRL, Wagenmaker et al. 2025,
arXiv:2506.15799). The answers stay such as the policy could have given."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engram.learning.algorithms.critics import MOTION
from engram.learning.algorithms.value_learning import Steps, ValueLearning, drawn
from engram.policies.vla.flow import integrate

FARTHEST = 2.0
"""How far the noise is moved at most, in its own standard deviations."""
COST = 0.002
"""What moving it by one costs, in the units of a value."""


class NoiseSteering(ValueLearning):
    """Learns by how much to move the noise, alike for all control steps of a chunk."""

    def make_rule(self) -> nn.Module:
        """Return the actor: which way the policy goes -> where the noise is moved; it begins with not at all."""
        last = nn.Linear(32, self.model.noise_shape[1])
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        return nn.Sequential(nn.Linear(MOTION, 32), nn.SiLU(), last)

    def rule_loss(self, steps: Steps, draw: Tensor) -> Tensor:
        """Return how little better the answers to the moved noise are."""
        moved, way = self._moved(steps), self.way(steps)
        gain = self.critics.gain(way, self.departure(self._answers(steps, draw, moved), steps))
        return COST * moved.square().mean() - gain.mean()

    def better(self, steps: Steps, draw: Tensor) -> tuple[Tensor, Tensor]:
        """Return the answers to the moved noise."""
        return self._answers(steps, draw, self._moved(steps)), torch.ones(len(draw))

    def _moved(self, steps: Steps) -> Tensor:
        """Return by how much (n, a) the noise is moved, in its standard deviations."""
        return FARTHEST * torch.tanh(self.rule(self.way(steps)))

    def _answers(self, steps: Steps, draw: Tensor, moved: Tensor) -> Tensor:
        """Return what the policy as it was answers (n, h, a) to noise ``draw`` (n,), moved by ``moved`` (n, a)."""
        config = self.model.config
        noise = drawn(steps.noise, draw) + config.noise_scale * moved[:, None]
        return integrate(self.before.at_steps(steps.condition, config.euler_steps), noise[:, None])[:, 0]
