"""An update rule of your own: of the policy's answers, the mean of those that critics deem better than the usual one.

Run this in the folder that holds `examples/`, or copy this file anywhere and name it `my_rule:above_usual`:

    engram improve --search 0 --exploration 0.2 --algorithm examples.algorithm:above_usual

In the nodes it is `algorithm: examples.algorithm:above_usual` of `learner_node`, with `exploration:=0.2`. The mean of
several answers is steadier than the best one, whose lead may be the critics' error.
"""

import torch

from engram.learning.algorithms.clone_policy import clone_policy
from engram.learning.algorithms.value_learning import Steps, ValueLearning, drawn


class AboveUsual(ValueLearning):
    """Gives the mean of the answers that gain; where none does, the one that the noise leads to."""

    def better(self, steps: Steps, draw: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return answers (n, h, a) that the head is to give in `steps`, and how much each of them counts (n,)."""
        n, answers = steps.answer.shape[:2]
        each = steps.at(torch.arange(n).repeat_interleave(answers))  # a step for each of its answers
        departures = self.departure(steps.answer.flatten(0, 1), each)
        gains = self.critics.gain(self.way(each), departures).view(n, answers) > 0.0
        share = gains.float() / gains.sum(1, keepdim=True).clamp(min=1)
        mean = torch.einsum("nd,ndha->nha", share, steps.answer)
        chosen = torch.where(gains.any(1)[:, None, None], mean, drawn(steps.answer, draw))
        return chosen, torch.ones(n)


def above_usual(policy) -> AboveUsual:
    """Return the rule for `policy`, as `--algorithm` takes it."""
    return AboveUsual(clone_policy(policy))
