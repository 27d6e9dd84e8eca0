"""The last steps side by side: the simplest memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engram.policies.sequence_memory.base import Moments, SequenceMemory, State


class FrameStack(SequenceMemory):
    """An MLP over the last ``steps`` features, this one among them, zeros before the first."""

    CONTENT = ("features",)

    def __init__(self, feature: int, dim: int, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.enter = nn.Linear(feature, dim)
        self.read_out = nn.Sequential(nn.Linear((steps + 1) * dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def begin(self, batch: int) -> State:
        """Return zeros."""
        return {"features": torch.zeros(batch, self.steps, self.enter.in_features, device=self.device)}

    def write(self, state: State, moment: Moments) -> State:
        """Shift by one."""
        return {"features": torch.cat((state["features"][:, 1:], moment.feature[:, None]), dim=1)}

    def read(self, state: State, query: Tensor, now: Moments) -> Tensor:
        """Read the stack."""
        return self.read_out(torch.cat((self.enter(state["features"]).flatten(1), query), dim=1))
