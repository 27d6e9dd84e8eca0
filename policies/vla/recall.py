"""Connects a sequence memory to the network: the feature that a step writes, and the reading in the flow head's
condition."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engram.policies.sequence_memory import MemoryFields, Moments, State, choose, make_memory
from engram.policies.vla.layers import Attention
from engram.policies.vla.likeness import ASPECTS, COLOR_TOKENS, Likeness

LAYOUT_WIDTH = 16
"""Numbers of each picture token that go into the layout of a step."""
FORESIGHT_STEPS = (8, 16, 32, 48)
"""The auxiliary loss predicts the tool's position so many control steps ahead."""
FORESIGHT_UNIT_M = 0.1
PLACE_LIMIT = 5.0
"""Tool positions are clipped to so many standard deviations of the data."""


class Recall(nn.Module):
    """A sequence memory and its gate into the condition of the flow head (AdaLN).

    The contribution is exactly 0 at the start, because ``fuse`` is: an untrained network acts as it would without
    memory, bit for bit. A scalar gate of 0 over random features hardly opens; a linear map of 0 learns from the first
    step which directions of the reading matter. As in MemoryVLA, the gate depends on reading and present.
    The reading is also matched against the present image tokens and the colors of their cells, so that a remembered
    color becomes a position. What is written comes from the cameras, the instruction and the tool's position, never
    from actions.
    """

    def __init__(self, config: MemoryFields, condition: int, pictures: int, cells: int = 0) -> None:
        """``condition`` is the length of the flow head's condition; there are so many picture tokens, and image cells
        with a colour."""
        super().__init__()
        d = config.dim
        self.details = nn.Sequential(
            nn.Linear(d, LAYOUT_WIDTH),
            nn.Flatten(),
            nn.Linear(LAYOUT_WIDTH * pictures, config.memory_details * d),
            nn.Unflatten(1, (config.memory_details, d)),
            nn.LayerNorm(d),
        )
        self.memory = make_memory(config, color_tokens=COLOR_TOKENS if cells else 0)
        self.likeness = Likeness(0 if self.memory.color_tokens else d) if cells else None
        self.norm_look = nn.LayerNorm(d)
        self.look = Attention(d, config.heads)
        self.intend = nn.Sequential(nn.Linear(3 * d + ASPECTS * cells, 2 * d), nn.ReLU())
        self.foresight = nn.Linear(2 * d, 3 * len(FORESIGHT_STEPS))
        self.gate = nn.Linear(2 * d, condition)
        self.fuse = nn.Linear(3 * d + self.foresight.out_features, condition)
        nn.init.zeros_(self.fuse.weight)
        nn.init.zeros_(self.fuse.bias)

    def feature(self, cognition: Tensor, pictures: Tensor, colours: Tensor | None = None) -> Tensor:
        """Return what a step leaves behind (B, (1 + details) * d + color_tokens): the cognitive token, ``details``
        perceptual ones, and what the salient cells look like.

        Perceptual tokens are linear maps of all image tokens together, each at its position. Attention would first have
        to learn what to look at before it could encode where that is.

        Args:
            cognition: (B, d).
            pictures: (B, n, d) tokens of the cameras, before the transformer.
            colours: (B, cells, 3) of the cameras' cells, if the network has such.
        """
        left = [cognition, self.details(pictures).flatten(1)]
        if self.likeness is not None:
            assert colours is not None
            left.append(self.likeness.color_tokens(colours))
        return torch.cat(left, dim=1)

    def forward(
        self,
        state: State,
        feature: Tensor,
        query: Tensor,
        robot: Tensor,
        time_s: Tensor,
        asked: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """Write steps in a row and read after each.

        Args:
            state: after the step before.
            feature: (B, T, f).
            query: (B, T, d) the cognitive tokens.
            robot: (B, T, s) normalised proprioception; only the tool's position is used, as the place.
            time_s: (B, T) s since the episode began.
            asked: (B, T) bool: after which steps the reading is wanted; None = all. The other readings mean nothing.

        Returns:
            Readings (B, T, d + memory.color_tokens) and the state after the last step.
        """
        return self.memory.unroll(state, Moments(feature, time_s, self.place(robot)), query, asked)

    def place(self, robot: Tensor) -> Tensor:
        """Return the tool's position (..., 3) in normalised proprioception (..., s)."""
        return robot[..., :3].clamp(-PLACE_LIMIT, PLACE_LIMIT)

    def condition(
        self,
        condition: Tensor,
        cognition: Tensor,
        reading: Tensor,
        pictures: Tensor,
        colours: Tensor | None = None,
    ) -> Tensor:
        """Return ``condition`` (B, c) plus the gated ``reading`` (B, d + color_tokens); the gate depends on
        ``cognition`` (B, d).

        ``pictures`` (B, n, d) are the tokens, and ``colours`` (B, cells, 3) the cells, in which the reading looks for
        what it is about.
        """
        intention = self._intention(cognition, reading, pictures, colours)
        reading = reading[:, : cognition.shape[1]]
        known = torch.cat((reading, intention, self.foresight(intention)), dim=-1)
        gate = torch.sigmoid(self.gate(torch.cat((cognition, reading), dim=-1)))
        return condition + gate * self.fuse(known)

    def foresee(self, cognition: Tensor, reading: Tensor, pictures: Tensor, colours: Tensor | None = None) -> Tensor:
        """Return where the tool will be in ``FORESIGHT_STEPS``, seen from where it is (B, steps, 3) in
        ``FORESIGHT_UNIT_M``.

        The demonstration contains these positions. With this loss, a memory learns from every step and not only from
        the few at which a choice is made.
        """
        foreseen = self.foresight(self._intention(cognition, reading, pictures, colours))
        return foreseen.unflatten(-1, (len(FORESIGHT_STEPS), 3))

    def _intention(self, cognition: Tensor, reading: Tensor, pictures: Tensor, colours: Tensor | None) -> Tensor:
        """Return features (B, 2 d) of the present, the reading, and its matches in the present ``pictures``."""
        reading, color_tokens = reading.split((cognition.shape[1], self.memory.color_tokens), dim=1)
        found = self.look(self.norm_look(cognition + reading)[:, None], pictures)[:, 0]
        known = [cognition, reading, found]
        if self.likeness is not None:
            assert colours is not None
            known.append(self.likeness(reading, color_tokens, colours))
        return self.intend(torch.cat(known, dim=-1))

    def begin(self, first: Tensor, state: State | None = None) -> State:
        """Return ``state``, reset in the episodes where ``first`` (B,) bool is true; None = in all of them."""
        fresh = self.memory.begin(len(first))
        return fresh if state is None else choose(first, fresh, state)
