"""A gated recurrent unit (Cho et al., 2014): the reference among recurrent memories."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engram.policies.sequence_memory.base import Moments, SequenceMemory, State


class Gru(SequenceMemory):
    """One layer of ``hidden`` units; PyTorch's own kernel does a whole sequence."""

    CONTENT = ("hidden",)

    def __init__(self, feature: int, dim: int, hidden: int) -> None:
        super().__init__()
        self.enter = nn.Linear(feature, dim)
        self.gru = nn.GRU(dim, hidden, batch_first=True)
        self.read_out = nn.Sequential(nn.Linear(hidden + dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def begin(self, batch: int) -> State:
        """Return a hidden state of zeros."""
        return {"hidden": torch.zeros(batch, self.gru.hidden_size, device=self.device)}

    def write(self, state: State, moment: Moments) -> State:
        """Take one step."""
        _, hidden = self.gru(self.enter(moment.feature)[:, None], state["hidden"][None].contiguous())
        return {"hidden": hidden[0]}

    def read(self, state: State, query: Tensor, now: Moments) -> Tensor:
        """Read the hidden state."""
        return self.read_out(torch.cat((state["hidden"], query), dim=-1))

    def unroll(
        self, state: State, moments: Moments, queries: Tensor, asked: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Take T steps in one call."""
        hidden, last = self.gru(self.enter(moments.feature), state["hidden"][None].contiguous())
        return self.read_out(torch.cat((hidden, queries), dim=-1)), {"hidden": last[0]}
