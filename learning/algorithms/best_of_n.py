"""Best of n: of several answers of the policy, the one that the critics deem best.

As IDQL draws it (Hansen-Estruch et al. 2023, arXiv:2304.10573), but learnt by the action head: the policy that drives
need not draw several answers, nor have the critics.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engram.learning.algorithms.value_learning import Steps, ValueLearning, drawn


class BestOfN(ValueLearning):
    """Gives the best of the answers that are kept of each step, whatever noise the flow begins with."""

    def better(self, steps: Steps, draw: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best of each step's answers; the drawn ones as long as the critics are sure of nothing."""
        if not self.critics.sure.any():
            return drawn(steps.answer, draw), torch.ones(len(draw))
        n, answers = steps.answer.shape[:2]
        each = steps.at(torch.arange(n).repeat_interleave(answers))
        gain = self.critics.gain(self.way(each), self.departure(steps.answer.flatten(0, 1), each))
        return drawn(steps.answer, gain.view(n, answers).argmax(1)), torch.ones(n)
