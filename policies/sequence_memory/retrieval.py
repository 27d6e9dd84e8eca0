"""The past in chunks, read in two stages: first the chunks, then the entries of the most relevant ones.

Cut by time it is the hierarchical chunk attention memory (HCAM; Lampinen et al., "Towards mental time travel", 2021);
with chunks found by likeness to the present, a retrieval of sub-trajectories after RA-DT; cut by place, the
place-centric memory of the Spatially-Aware Transformer (Cho et al., 2024).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.policies.sequence_memory.base import MomentCode, Moments, Reader, SequenceMemory, State


@dataclass(frozen=True)
class ChunksConfig:
    """Sizes of a memory in chunks."""

    feature: int
    """Length of a step's feature."""
    dim: int
    """Width d of query and reading."""
    heads: int
    """Attention heads of the second stage."""
    chunks: int = 8
    """Chunks that are kept."""
    length: int = 8
    """Steps in a chunk."""
    read: int = 3
    """Chunks that the second stage looks into."""
    radius: float = 0.5
    """By place: a chunk is for steps within this distance of the oldest step in it [standard deviations]."""


class Chunks(SequenceMemory):
    """Base class: steps in chunks. A subclass decides into which chunk a step goes."""

    CONTENT = ("feature",)

    def __init__(self, config: ChunksConfig) -> None:
        super().__init__()
        self.config = config
        d = config.dim
        self.enter = nn.Linear(config.feature, d)
        self.code = MomentCode(d)
        self.ask, self.answer = nn.Linear(d, d), nn.Linear(d, d)
        self.reader = Reader(d, config.heads)

    def begin(self, batch: int) -> State:
        """Return empty chunks."""
        shape = (batch, self.config.chunks, self.config.length)
        ends = {"feature": (self.config.feature,), "time_s": (), "place": (3,), "filled": ()}
        return {name: torch.zeros(*shape, *end, device=self.device) for name, end in ends.items()}

    def write(self, state: State, moment: Moments) -> State:
        """Put the step at the end of its chunk; a chunk that is full loses its oldest step."""
        chunk, begun = self.choose(state, moment)  # (B,), (B,)
        own = torch.arange(self.config.chunks, device=chunk.device) == chunk[:, None]  # (B, M)
        new = {**vars(moment), "filled": torch.ones_like(moment.time_s)}
        after = {}
        for name, old in state.items():
            end = [1] * (old.ndim - 3)
            kept = torch.where(begun.view(-1, 1, 1, *end), 0.0, old[:, :, 1:])
            shifted = torch.cat((kept, new[name][:, None, None].expand_as(old[:, :, :1])), dim=2)
            after[name] = torch.where(own.view(*own.shape, 1, *end), shifted, old)
        return after

    @abstractmethod
    def choose(self, state: State, moment: Moments) -> tuple[Tensor, Tensor]:
        """Return the chunk (B,) int64 of a step, and whether it is emptied first (B,) bool."""

    def read(self, state: State, query: Tensor, now: Moments) -> Tensor:
        """Attend to the means of the chunks, then within the most relevant ones, weighted by their relevance."""
        _, m, n = state["filled"].shape
        flat = {name: tensor.flatten(1, 2) for name, tensor in state.items()}
        code = self.code(flat["time_s"], flat["filled"], flat["place"], now)
        entries = (self.enter(flat["feature"]) + code).unflatten(1, (m, n))
        filled = state["filled"][..., None]
        mean = (entries * filled).sum(2) / filled.sum(2).clamp(min=1.0)  # (B, M, d)
        relevance = self.relevance(state, mean, query).masked_fill(state["filled"].sum(2) == 0, -1e4)
        best, which = relevance.topk(min(self.config.read, m), dim=1)  # (B, k)
        chosen = entries.gather(1, which[..., None, None].expand(-1, -1, n, entries.shape[-1])).flatten(0, 1)
        there = state["filled"].gather(1, which[..., None].expand(-1, -1, n)).flatten(0, 1) > 0
        found = self.reader(query.repeat_interleave(which.shape[1], 0), chosen, there).unflatten(0, which.shape)
        return (best.softmax(1)[..., None] * found).sum(1)

    def relevance(self, state: State, mean: Tensor, query: Tensor) -> Tensor:
        """Return how much each chunk matters (B, M): here by learned attention of ``query`` to the chunks' ``mean``."""
        return (self.answer(mean) @ self.ask(query)[..., None]).squeeze(-1) * query.shape[-1] ** -0.5


class TimeChunks(Chunks):
    """HCAM: a chunk is so many steps in a row; the oldest chunk is given up."""

    def choose(self, state: State, moment: Moments) -> tuple[Tensor, Tensor]:
        """Return the newest chunk, or the oldest one, emptied, when that is full."""
        steps = state["filled"].sum(2)  # (B, M)
        newest = state["time_s"].amax(2).masked_fill(steps == 0, -1.0)
        last = newest.argmax(1)
        full = steps.gather(1, last[:, None])[:, 0] >= self.config.length
        return torch.where(full, newest.argmin(1), last), full


class RetrievalMemory(TimeChunks):
    """Retrieves sub-trajectories of this episode that resemble the present one, after RA-DT.

    Schmied et al., "Retrieval-Augmented Decision Transformer", 2024.

    As there, a sub-trajectory is found by the cosine of plain mean features, not by learned attention, and those found
    are read by cross-attention. Unlike there, they come from this very episode, and carry neither actions nor returns.
    """

    TEMPERATURE = 0.1

    def relevance(self, state: State, mean: Tensor, query: Tensor) -> Tensor:
        """Return the cosine of each chunk to the newest one, which is not found itself unless it is the only one."""
        filled = state["filled"][..., None]
        key = (state["feature"] * filled).sum(2) / filled.sum(2).clamp(min=1.0)  # (B, M, f)
        newest = state["time_s"].amax(2).masked_fill(filled.sum((2, 3)) == 0, -1.0).argmax(1, keepdim=True)
        present = key.gather(1, newest[..., None].expand(-1, -1, key.shape[-1]))
        alike = F.cosine_similarity(key, present, dim=-1).detach() / self.TEMPERATURE
        return alike.scatter(1, newest, -1e3)


class PlaceChunks(Chunks):
    """Place-centric: a chunk is a region, and keeps the newest steps there; the least visited lately is given up."""

    def choose(self, state: State, moment: Moments) -> tuple[Tensor, Tensor]:
        """Return the chunk whose oldest step is nearest, or another one, emptied, when none is near enough."""
        filled = state["filled"] > 0
        oldest = filled.int().argmax(2)  # chunks are packed to the end
        first = state["place"].gather(2, oldest[..., None, None].expand(-1, -1, 1, 3))[:, :, 0]
        away = (first - moment.place[:, None]).norm(dim=-1).masked_fill(~filled.any(2), float("inf"))
        newest = state["time_s"].amax(2).masked_fill(~filled.any(2), -1.0)
        new = away.amin(1) > self.config.radius
        return torch.where(new, newest.argmin(1), away.argmin(1)), new
