"""Remembers the first step of the episode alone: an upper bound for a cue at the very beginning."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engram.policies.sequence_memory.base import Moments, SequenceMemory, State


class FirstFrame(SequenceMemory):
    """An MLP over the first step's feature; where the cue comes later, it knows no more than no memory."""

    CONTENT = ("feature",)

    def __init__(self, feature: int, dim: int) -> None:
        super().__init__()
        self.enter = nn.Linear(feature, dim)
        self.read_out = nn.Sequential(nn.Linear(2 * dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def begin(self, batch: int) -> State:
        """Return zeros and no step."""
        feature = torch.zeros(batch, self.enter.in_features, device=self.device)
        return {"feature": feature, "steps": torch.zeros(batch, device=self.device)}

    def write(self, state: State, moment: Moments) -> State:
        """Keep the step if it is the first."""
        kept = torch.where(state["steps"][:, None] == 0, moment.feature, state["feature"])
        return {"feature": kept, "steps": state["steps"] + 1}

    def read(self, state: State, query: Tensor, now: Moments) -> Tensor:
        """Read what the first step left."""
        return self.read_out(torch.cat((self.enter(state["feature"]), query), dim=-1))
