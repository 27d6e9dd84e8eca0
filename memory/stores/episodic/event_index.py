"""Events in order of time, as arrays: similarity, temporal contiguity, hierarchical recall, alike neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engram.core.types import EMBEDDING_DIM


@dataclass(frozen=True)
class RecallConfig:
    """Weights and bounds of recall."""

    chunk: int = 32
    """Events a summary stands for (HCAM, Lampinen et al. 2021)."""
    chunks: int = 8
    """Summaries whose events are looked at."""
    seeds: int = 8
    """Best events whose neighbours in time are recalled with them."""
    lag: float = 2.0
    """Events after which contiguity falls to 1/e (Howard and Kahana 2002)."""
    backward: float = 0.6
    """Weight of events before a match relative to events after it."""
    similarity_weight: float = 0.7
    """Share of the cosine in the score."""
    contiguity_weight: float = 0.15
    """Share of contiguity."""
    outcome_weight: float = 0.15
    """Share of how the task ended that the entry belongs to."""


class EventIndex:
    """Vectors (n, 384) of events by position; position i came before i + 1."""

    def __init__(self, config: RecallConfig | None = None) -> None:
        self.config = config or RecallConfig()
        self._vectors: np.ndarray = np.zeros((64, EMBEDDING_DIM), np.float32)
        self._sums: np.ndarray = np.zeros((2, EMBEDDING_DIM), np.float32)  # of each chunk of positions
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def append(self, vector: np.ndarray) -> int:
        """Add the newest event's unit vector (384,) and return its position."""
        if self._n == len(self._vectors):
            self._vectors = np.concatenate((self._vectors, np.zeros_like(self._vectors)))
        self._n += 1
        self.replace(self._n - 1, vector)
        return self._n - 1

    def replace(self, position: int, vector: np.ndarray) -> None:
        """Change the vector of the event at ``position``."""
        chunk = position // self.config.chunk
        if chunk >= len(self._sums):
            self._sums = np.concatenate((self._sums, np.zeros_like(self._sums)))
        self._sums[chunk] += vector - self._vectors[position]
        self._vectors[position] = vector

    def vector(self, position: int) -> np.ndarray:
        """Return the vector (384,) at ``position``."""
        return self._vectors[position]

    def similarity(self, vector: np.ndarray | None) -> np.ndarray:
        """Return the cosine (n,) 0..1 of every event; 0 where the summary of its chunk did not make the cut.

        Without a vector nothing was asked in words: all ones.
        """
        if vector is None or self._n == 0:
            return np.ones(self._n)
        size = self.config.chunk
        count = -(-self._n // size)
        scores = np.zeros(count * size)
        summaries = self._sums[:count]
        norms = np.maximum(np.linalg.norm(summaries, axis=1), 1e-9)
        best = np.argsort(-(summaries @ vector) / norms, kind="stable")[: self.config.chunks]
        rows: np.ndarray = (np.sort(best)[:, None] * size + np.arange(size)).ravel()
        rows = rows[rows < self._n]
        scores[rows] = self._vectors[rows] @ vector
        return np.clip(scores[: self._n], 0.0, 1.0)

    def contiguity(self, similarity: np.ndarray) -> np.ndarray:
        """Return (n,) 0..1: how near in time an event is to those that fit best, more so after than before them."""
        near = np.zeros(self._n)
        seeds = np.argsort(-similarity, kind="stable")[: self.config.seeds]
        reach = int(np.ceil(4 * self.config.lag))
        for seed in seeds[similarity[seeds] > 0]:
            low, high = max(0, seed - reach), min(self._n, seed + reach + 1)
            lag = np.arange(low, high) - seed
            curve = np.exp(-(np.abs(lag) - 1) / self.config.lag) * np.where(lag < 0, self.config.backward, 1.0)
            curve[lag == 0] = 0.0  # an event is no neighbour of itself
            near[low:high] = np.maximum(near[low:high], similarity[seed] * curve)
        return near

    def most_alike_neighbours(self, count: int, allowed: np.ndarray) -> np.ndarray:
        """Return at most ``count`` positions i, no two adjacent, whose event is most like that at i + 1.

        ``allowed`` (n - 1,) bool says which pairs may become one. MemoryVLA (Shi et al. 2025): over capacity,
        neighbours in time that say the same are merged.
        """
        alike = np.einsum("ij,ij->i", self._vectors[: self._n - 1], self._vectors[1 : self._n])
        chosen: list[int] = []
        taken = np.zeros(self._n, bool)
        for i in np.argsort(-alike, kind="stable"):
            if len(chosen) == count:
                break
            if allowed[i] and not taken[i] and not taken[i + 1]:
                chosen.append(int(i))
                taken[i] = taken[i + 1] = True
        return np.sort(np.array(chosen, np.int64))
