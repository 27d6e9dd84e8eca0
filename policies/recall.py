"""Memory as the action head gets it: what a step leaves behind, and the reading in the flow head's condition."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engram.policies.configuration_engram_vla import EngramVLAConfig
from engram.policies.layers import Attention
from engram.policies.memories import Moments, State, choose, make_memory

PLACE_LIMIT = 5.0
"""Places are kept within so many standard deviations of the data."""


class Recall(nn.Module):
    """A memory of the episode and its gate into the condition of the flow head (AdaLN).

    What is let in is 0 at the start, because ``fuse`` is: a fresh network acts as it would without memory, to the bit.
    Unlike a scalar gate of 0 over random features, which hardly opens, a map of 0 learns from the first step which
    directions of the reading matter. How much of it the present needs, the gate tells from both, as in MemoryVLA.
    What is written comes from the cameras, the instruction and the tool's position, never from actions.
    """

    def __init__(self, config: EngramVLAConfig, condition: int) -> None:
        super().__init__()
        d = config.dim
        self.asking = nn.Parameter(torch.randn(config.memory_details, d) * 0.02)
        self.details = Attention(d, config.heads)
        self.norm = nn.LayerNorm(d)
        self.memory = make_memory(config)
        self.gate = nn.Linear(2 * d, condition)
        self.fuse = nn.Linear(d, condition)
        nn.init.zeros_(self.fuse.weight)
        nn.init.zeros_(self.fuse.bias)

    def feature(self, cognition: Tensor, pictures: Tensor) -> Tensor:
        """Return what a step leaves behind (B, (1 + details) * d): the cognitive token and ``details`` perceptual ones.

        Args:
            cognition: (B, d).
            pictures: (B, n, d) tokens of the cameras, before they were bent to what the present action needs.
        """
        asking = self.asking.expand(len(cognition), -1, -1)
        return torch.cat((cognition, self.norm(self.details(asking, pictures)).flatten(1)), dim=1)

    def forward(
        self, state: State, feature: Tensor, query: Tensor, robot: Tensor, time_s: Tensor
    ) -> tuple[Tensor, State]:
        """Write steps in a row and read after each.

        Args:
            state: after the step before.
            feature: (B, T, f).
            query: (B, T, d) the cognitive tokens.
            robot: (B, T, s) normalised proprioception; only the tool's position is used, as the place.
            time_s: (B, T) s since the episode began.

        Returns:
            Readings (B, T, d) and the state after the last step.
        """
        return self.memory.unroll(state, Moments(feature, time_s, self.place(robot)), query)

    def place(self, robot: Tensor) -> Tensor:
        """Return the tool's position (..., 3) in normalised proprioception (..., s)."""
        return robot[..., :3].clamp(-PLACE_LIMIT, PLACE_LIMIT)

    def condition(self, condition: Tensor, cognition: Tensor, reading: Tensor) -> Tensor:
        """Return ``condition`` (B, c) with the ``reading`` (B, d) in it, as far as ``cognition`` (B, d) needs it."""
        gate = torch.sigmoid(self.gate(torch.cat((cognition, reading), dim=-1)))
        return condition + gate * self.fuse(reading)

    def begin(self, first: Tensor, state: State | None = None) -> State:
        """Return ``state`` with the episodes of which ``first`` (B,) bool is true begun anew; None = all of them."""
        fresh = self.memory.begin(len(first))
        return fresh if state is None else choose(first, fresh, state)
