"""What a batch is drawn from: parts of the control steps, each with its share, without a loop over the batch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Pool:
    """Steps to draw from, group after group: each group with the same probability, and within it each step."""

    rows: np.ndarray  # (n,) int64, those of the first group first
    sizes: np.ndarray  # (g,) steps of each group, 1 or more

    def __len__(self) -> int:
        return len(self.rows)

    @staticmethod
    def even(rows: np.ndarray) -> Pool:
        """Return a pool in which each of ``rows`` (n,) has the same probability."""
        return Pool(rows, np.array([len(rows)]))

    @staticmethod
    def balanced(rows: np.ndarray, group: np.ndarray) -> Pool:
        """Return a pool of ``rows`` (n,) whose groups are the numbers in ``group`` (n,)."""
        order = np.argsort(group, kind="stable")
        return Pool(rows[order], np.unique(group, return_counts=True)[1])

    @cached_property
    def _begins(self) -> np.ndarray:
        return np.cumsum(self.sizes) - self.sizes

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Return ``count`` of the rows; with one group as many draws are taken from ``rng``, else twice as many."""
        if not count:
            return np.zeros(0, np.int64)
        if len(self.sizes) == 1:
            return self.rows[rng.integers(len(self.rows), size=count)]
        group = rng.integers(len(self.sizes), size=count)
        return self.rows[self._begins[group] + rng.integers(0, self.sizes[group])]


def counts(size: int, shares: Sequence[float]) -> list[int]:
    """Return how many of ``size`` each of ``shares`` gets, rounded, together at most ``size``."""
    until = [min(size, round(size * share)) for share in itertools.accumulate(shares, initial=0.0)]
    return [end - begin for begin, end in itertools.pairwise(until)]
