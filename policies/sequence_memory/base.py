"""The contract of a sequence memory: what each control step writes, and how it is read."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.policies.vla.layers import Attention

SHARPNESS = 3.5
"""Scale of the query projection at initialization; PyTorch's default is 0.6."""
State = dict[str, Tensor]
"""The whole state of a memory. Each tensor has a leading (B,). It is saved to disk as arrays of the same names."""


@dataclass(frozen=True)
class Moments:
    """What control steps write: leading shape (B,) for one step, (B, T) for T steps in a row."""

    feature: Tensor  # (..., f)
    time_s: Tensor  # (...) s since the episode began
    place: Tensor  # (..., 3) tool position, in standard deviations of the training data

    def at(self, step: int) -> Moments:
        """Return step ``step`` of (B, T) moments, as (B,)."""
        return Moments(self.feature[:, step], self.time_s[:, step], self.place[:, step])


class SequenceMemory(nn.Module, ABC):
    """Written once every control step, in training as in deployment, and then read.

    A subclass says how to begin, write and read. :meth:`unroll` does many steps at once; it must give what writing
    and reading step by step gives (``tests/contracts/sequence_memory.py`` holds every implementation to it).
    """

    CONTENT: ClassVar[tuple[str, ...]]
    """The tensors of the state that hold content; the others say when, where and how much."""

    color_tokens: int = 0
    """Length of the color tokens at the end of a reading, as they were written."""

    @abstractmethod
    def begin(self, batch: int) -> State:
        """Return the empty state of ``batch`` episodes."""

    @abstractmethod
    def write(self, state: State, moment: Moments) -> State:
        """Return the state after one step (B,); ``state`` itself stays as it is."""

    @abstractmethod
    def read(self, state: State, query: Tensor, now: Moments) -> Tensor:
        """Return the reading for ``query`` (B, d), of shape (B, d + color_tokens). ``now`` (B,) is the current step,
        already written."""

    def unroll(
        self, state: State, moments: Moments, queries: Tensor, asked: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Write T steps and read after each.

        Args:
            state: after the step before.
            moments: (B, T).
            queries: (B, T, d).
            asked: (B, T) bool: after which steps the reading is wanted; None = all. The other readings mean nothing.

        Returns:
            Readings (B, T, d + color_tokens) and the state after the last step.
        """
        states = []
        for step in range(queries.shape[1]):
            state = self.write(state, moments.at(step))
            states.append(state)
        each = torch.ones_like(moments.time_s, dtype=torch.bool) if asked is None else asked
        whole = {name: torch.stack([s[name] for s in states], dim=1)[each] for name in state}
        now = Moments(moments.feature[each], moments.time_s[each], moments.place[each])
        return spread(self.read(whole, queries[each], now), each), state

    def described(self, state: State) -> str:
        """Return a short description of one episode's ``state`` for diagnostics."""
        return f"{sum(state[name].numel() for name in self.CONTENT)} numbers"

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device


def spread(values: Tensor, where: Tensor) -> Tensor:
    """Return ``values`` (n, w) in the n true places of ``where`` (B, T), zeros elsewhere: (B, T, w)."""
    laid = torch.zeros(*where.shape, values.shape[-1], dtype=values.dtype, device=values.device)
    return laid.masked_scatter(where[..., None], values)


def choose(first: Tensor, fresh: State, state: State) -> State:
    """Return ``fresh`` for the episodes of which ``first`` (B,) bool is true and ``state`` for the others."""
    return {
        name: torch.where(first.view(-1, *[1] * (tensor.ndim - 1)), fresh[name], tensor)
        for name, tensor in state.items()
    }


class MomentCode(nn.Module):
    """Encodes when and where an entry was written, both relative to now and in the episode's own time and space.

    The order within an episode does not depend on the delay since then. With the age alone, it would have to be learned
    for every delay.
    """

    WAVES = 8
    rate: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.project = nn.Linear(4 * self.WAVES + 9, dim)
        # periods from 0.4 s, two control steps of 5 Hz, to 51 s
        rate = 2 * math.pi / (0.4 * 2.0 ** torch.arange(self.WAVES, dtype=torch.float32))
        self.register_buffer("rate", rate, persistent=False)

    def forward(self, time_s: Tensor, count: Tensor, place: Tensor, now: Moments) -> Tensor:
        """Return (B, k, d).

        Args:
            time_s: (B, k) when it was written [s since the episode began].
            count: (B, k) control steps that were merged into the entry.
            place: (B, k, 3) where it was written.
            now: (B,) from where it is seen.
        """
        age_s, way = now.time_s[:, None] - time_s, place - now.place[:, None]
        age, since = age_s[..., None] * self.rate, time_s[..., None] * self.rate
        size = torch.stack((torch.log1p(age_s.clamp(min=0)), torch.log1p(count)), dim=-1)
        late = torch.log1p(time_s.clamp(min=0))[..., None]
        return self.project(torch.cat((age.sin(), age.cos(), size, place, way, since.sin(), since.cos(), late), dim=-1))


class Reader(nn.Module):
    """One query over entries by cross-attention, followed by an MLP on query and result.

    A learned null entry is always readable: it is the result for an empty memory, and its attention weight tells a full
    memory from an empty one.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm_query, self.norm_entries, self.norm_read = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.null = nn.Parameter(torch.randn(dim) * 0.02)
        self.attention = Attention(dim, heads)
        # uniform attention averages a cue with everything else; heads that start with a preference learn faster
        nn.init.normal_(self.attention.query.weight, std=SHARPNESS * dim**-0.5)
        self.mlp = nn.Sequential(nn.Linear(2 * dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, query: Tensor, entries: Tensor, readable: Tensor) -> Tensor:
        """Return (B, d) for ``query`` (B, d), ``entries`` (B, k, d) and ``readable`` (B, k) bool."""
        null = self.null.expand(len(query), 1, -1)
        asked = self.norm_query(query)
        mask = F.pad(readable, (1, 0), value=True)
        read = self.attention.one(asked, torch.cat((null, self.norm_entries(entries)), dim=1), mask)
        return read + self.mlp(torch.cat((asked, self.norm_read(read)), dim=-1))
