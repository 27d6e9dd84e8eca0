"""A correction of the motions becomes part of the weights: the action head learns the corrected answers.

What the policy sees stays as it is; a correction only changes what it does. So pictures and words are encoded once, and
the head alone is trained. It learns pairs of a noise and the answer that the old head makes of it (reflow, Liu et al.,
"Flow Straight and Fast", arXiv:2209.03003): a noise has one answer, so that nothing has to be averaged out.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engram.core.motion_correction import MotionCorrection
from engram.policies.vla.flow import integrate
from engram.policies.vla.layers import FlowHead
from engram.policies.vla.network import EngramVLA


@dataclass(frozen=True)
class DistillationConfig:
    """AdamW with a learning rate that falls to zero in a half wave."""

    updates: int = 2000
    """Updates of the head."""
    batch_size: int = 256
    """Answers in an update."""
    learning_rate: float = 1e-3
    """The first one."""
    kept: float = 0.4
    """Share of the answers that are to other goals, and are not corrected."""


class ActionUnits:
    """Where a policy's normalised answers lie among actions.

    Args:
        postprocess: the policy's postprocessor, (B, h, a) -> actions; it only scales and shifts each component.
        width: components of an action (a).
    """

    def __init__(self, postprocess: Callable[[Tensor], Tensor], width: int) -> None:
        self._shift, one = postprocess(torch.stack((torch.zeros(1, width), torch.ones(1, width))))[:, 0]
        self._unit = one - self._shift

    def actions(self, answers: Tensor) -> Tensor:
        """Return the actions (..., a) that normalised ``answers`` mean, within what actions may be."""
        return (answers * self._unit + self._shift).clamp(-1.0, 1.0)

    def answers(self, actions: Tensor) -> Tensor:
        """Return ``actions`` (..., a) as normalised answers."""
        return (actions - self._shift) / self._unit

    def corrected(self, answers: Tensor, correction: MotionCorrection) -> Tensor:
        """Return normalised ``answers`` (n, h, a) with their motions corrected by ``correction``."""
        actions = self.actions(answers)
        matrix = torch.tensor(correction.matrix(), dtype=actions.dtype)
        shift = torch.tensor(correction.shift, dtype=actions.dtype)
        actions[..., :3] = (actions[..., :3] @ matrix.T + shift).clamp(-1.0, 1.0)
        return self.answers(actions)


def distill_head(
    network: EngramVLA,
    seen: Sequence[tuple[Tensor, Callable[[Tensor], Tensor]]],
    kept: Tensor,
    config: DistillationConfig | None = None,
    check: Callable[[], None] = lambda: None,
) -> float:
    """Train the head of ``network`` in place; random numbers are torch's global ones. Return the mean loss at the end.

    Args:
        network: whose head answers as it shall, but for the corrections.
        seen: (n, c) conditions of the head in which its answers are corrected, each with what does so: (k, h, a)
            normalised answers -> the same, corrected. Each is drawn as often as any other.
        kept: (m, c) conditions in which they stay; m may be 0.
        config: how.
        check: called before each update; what it raises ends the training.
    """
    config = config or DistillationConfig()
    head, steps = network.head, network.config.euler_steps
    old, loss_at_end = copy.deepcopy(head).eval().requires_grad_(False), 0.0
    optimizer = torch.optim.AdamW(head.parameters(), config.learning_rate, weight_decay=0.0)
    rest = round(config.kept * config.batch_size) if len(kept) else 0
    parts = [len(part) for part in torch.arange(config.batch_size - rest).tensor_split(len(seen))]
    for update in range(config.updates):
        check()
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * 0.5 * (1.0 + math.cos(math.pi * update / config.updates))
        drawn = [_drawn(conditions, part) for (conditions, _), part in zip(seen, parts, strict=True)]
        condition = torch.cat((*drawn, _drawn(kept, rest)) if rest else drawn)
        start = torch.randn(len(condition), *network.noise_shape) * network.config.noise_scale
        with torch.no_grad():
            answers = integrate(old.at_steps(condition, steps), start[:, None])[:, 0]
            split = answers.split([*parts, rest])
            corrected = [correct(each) for (_, correct), each in zip(seen, split[:-1], strict=True)]
            answers = torch.cat((*corrected, split[-1]))
        loss = flow_error(head, condition, start, answers, steps).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        loss_at_end += (float(loss.detach()) - loss_at_end) / min(update + 1, 100)
    return loss_at_end


def flow_error(head: FlowHead, condition: Tensor, start: Tensor, answers: Tensor, steps: int) -> Tensor:
    """Return how far (n,) the flow of ``head`` is from leading ``start`` (n, h, a) straight to ``answers`` (n, h, a).

    It is asked at a random one of the times at which it is followed in ``steps`` Euler steps.
    """
    time = torch.randint(steps, (len(condition), 1)) / steps
    point = start + time[..., None] * (answers - start)
    return (head(point[:, None], time, condition)[:, 0] - (answers - start)).square().mean((1, 2))


def _drawn(conditions: Tensor, count: int) -> Tensor:
    return conditions[torch.randint(len(conditions), (count,))]
