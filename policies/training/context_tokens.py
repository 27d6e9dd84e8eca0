"""The tokens of ``memory/context`` of a dataset's frames, each embedding kept once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engram.policies.lerobot.configuration_engram_vla import (
    MEMORY_AGE_KEY,
    MEMORY_MASK_KEY,
    MEMORY_PLACE_KEY,
    MEMORY_TOKENS_KEY,
)

KEYS = (MEMORY_TOKENS_KEY, MEMORY_AGE_KEY, MEMORY_PLACE_KEY, MEMORY_MASK_KEY)
_PARTS = ("embeddings", "which", "age_s", "place", "mask")


@dataclass(frozen=True)
class ContextTokens:
    """What the scene graph offered at each of n frames, k entries each.

    An object's embedding stays the same for many frames: written out, it would be most of what a dataset weighs.
    """

    embeddings: np.ndarray  # (m, e) float32: those that differ
    which: np.ndarray  # (n, k) int32: row of ``embeddings``
    age_s: np.ndarray  # (n, k) float32
    place: np.ndarray  # (n, k, 3) float32 m, base_link
    mask: np.ndarray  # (n, k) bool; False = padding

    def of(self, rows: np.ndarray) -> dict[str, Tensor]:
        """Return the features of frames ``rows`` (b,), as a policy takes them."""
        arrays = (self.embeddings[self.which[rows]], self.age_s[rows], self.place[rows], self.mask[rows])
        return {key: torch.from_numpy(array) for key, array in zip(KEYS, arrays, strict=True)}

    def save(self, folder: Path) -> None:
        """Write the arrays into ``folder``."""
        for name in _PARTS:
            np.save(folder / f"context.{name}.npy", getattr(self, name))

    @staticmethod
    def load(folder: Path) -> ContextTokens:
        """Return what :meth:`save` wrote."""
        return ContextTokens(*(np.load(folder / f"context.{name}.npy") for name in _PARTS))


class ContextBuilder:
    """Takes in a dataset's frames, batch by batch."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        self._embeddings: list[np.ndarray] = []
        self._parts: list[tuple[np.ndarray, ...]] = []

    def add(self, tokens: np.ndarray, age_s: np.ndarray, place: np.ndarray, mask: np.ndarray) -> None:
        """Append frames: (b, k, e), (b, k), (b, k, 3), (b, k)."""
        which = np.array([[self._row(entry) for entry in frame] for frame in tokens], np.int32)
        self._parts.append((which, age_s.astype(np.float32), place.astype(np.float32), mask.astype(bool)))

    def built(self) -> ContextTokens:
        """Return all frames."""
        return ContextTokens(np.stack(self._embeddings), *(np.concatenate(p) for p in zip(*self._parts, strict=True)))

    def _row(self, embedding: np.ndarray) -> int:
        row = self._known.setdefault(embedding.tobytes(), len(self._embeddings))
        if row == len(self._embeddings):
            self._embeddings.append(embedding.astype(np.float32))
        return row
