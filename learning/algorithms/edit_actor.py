"""An edit actor: what the critics deem surely better is added to every motion of the policy's answers.

The policy stays frozen and its answers are edited, as in residual RL and EXPO (Dong et al. 2025, arXiv:2507.07986). The
critics' advantage is linear, so the edit that gains most is known in closed form: no network has to climb it, and find
where it errs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engram.learning.algorithms.value_learning import Steps, ValueLearning


class EditActor(ValueLearning):
    """Gives the edited answers."""

    def better(self, steps: Steps, draw: Tensor) -> tuple[Tensor, Tensor]:
        """Return each drawn answer with the same edit added to all of its motions, relative to their lengths."""
        return self.edited(steps, draw, self.critics.best(self.way(steps))), torch.ones(len(draw))
