"""The tokens of ``memory/context`` at many control steps, each embedding kept once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engram.core.types import MemoryTokens

MEMORY_PREFIX = "observation.memory."
"""Of the names of these features."""
MEMORY_TOKENS_KEY = f"{MEMORY_PREFIX}tokens"
"""(B, k, e) tokens of ``memory/context``, as datasets and batches of a policy call them."""
MEMORY_AGE_KEY = f"{MEMORY_PREFIX}age_s"
"""(B, k) seconds since each was last true."""
MEMORY_PLACE_KEY = f"{MEMORY_PREFIX}place"
"""(B, k, 3) its position in ``base_link`` [m]."""
MEMORY_MASK_KEY = f"{MEMORY_PREFIX}mask"
"""(B, k) bool; False = padding."""
MEMORY_KEYS = (MEMORY_TOKENS_KEY, MEMORY_AGE_KEY, MEMORY_PLACE_KEY, MEMORY_MASK_KEY)
_PARTS = ("embeddings", "which", "age_s", "place", "mask")


@dataclass(frozen=True)
class ContextRows:
    """What the memory offered at each of n steps, k entries each.

    An object's embedding stays the same for many steps: written out, it would be most of what a dataset weighs.
    """

    embeddings: np.ndarray  # (m, e) float32: those that differ
    which: np.ndarray  # (n, k) int32: row of ``embeddings``
    age_s: np.ndarray  # (n, k) float32
    place: np.ndarray  # (n, k, 3) float32 m, base_link
    mask: np.ndarray  # (n, k) bool; False = padding

    def __len__(self) -> int:
        return len(self.which)

    def at(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the features of steps ``rows`` (b,), as a policy takes them, by ``MEMORY_KEYS``."""
        arrays = (self.embeddings[self.which[rows]], self.age_s[rows], self.place[rows], self.mask[rows])
        return dict(zip(MEMORY_KEYS, arrays, strict=True))

    def save(self, folder: Path) -> None:
        """Write the arrays into ``folder``."""
        for name in _PARTS:
            np.save(folder / f"context.{name}.npy", getattr(self, name))

    @staticmethod
    def load(folder: Path) -> ContextRows:
        """Return what :meth:`save` wrote."""
        return ContextRows(*(np.load(folder / f"context.{name}.npy") for name in _PARTS))

    @staticmethod
    def of(steps: Sequence[MemoryTokens | None]) -> ContextRows | None:
        """Return what was offered at ``steps``, None: nothing; None if nothing ever was.

        Raises:
            ValueError: the tokens differ in length.
        """
        offered = [step for step in steps if step is not None and len(step.tokens)]
        if not offered:
            return None
        k, e = max(len(step.tokens) for step in offered), offered[0].tokens.shape[1]
        nothing = np.zeros((0, e), np.float32), np.zeros(0, np.float32), np.zeros((0, 3), np.float32), np.zeros(0, bool)
        rows = [nothing if step is None else (step.tokens, step.age_s, step.place, step.mask) for step in steps]
        builder = ContextBuilder()
        builder.add(*(np.stack([padded(row[part], k) for row in rows]) for part in range(4)))
        return builder.built()

    @staticmethod
    def joined(parts: Sequence[tuple[ContextRows | None, int]]) -> ContextRows | None:
        """Return the rows of ``parts`` one after the other; of a part that is None, so many without an entry."""
        there = [part for part, _ in parts if part is not None]
        if not there:
            return None
        k, e = max(part.which.shape[1] for part in there), there[0].embeddings.shape[1]
        embeddings, rows = [np.zeros((1, e), np.float32)], list[tuple[np.ndarray, ...]]()
        for part, count in parts:
            if part is None:
                empty = np.zeros((count, k), np.int32), np.zeros((count, k), np.float32)
                rows.append((*empty, np.zeros((count, k, 3), np.float32), np.zeros((count, k), bool)))
                continue
            begin = sum(len(each) for each in embeddings)
            embeddings.append(part.embeddings)
            arrays = (part.which + np.int32(begin), part.age_s, part.place, part.mask)
            rows.append(tuple(padded(array, k, axis=1) for array in arrays))
        return ContextRows(np.concatenate(embeddings), *(np.concatenate(each) for each in zip(*rows, strict=True)))


class ContextBuilder:
    """Takes in steps, batch by batch."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        self._embeddings: list[np.ndarray] = []
        self._parts: list[tuple[np.ndarray, ...]] = []

    def add(self, tokens: np.ndarray, age_s: np.ndarray, place: np.ndarray, mask: np.ndarray) -> None:
        """Append steps: (b, k, e), (b, k), (b, k, 3), (b, k)."""
        which = np.array([[self._row(entry) for entry in step] for step in tokens], np.int32)
        self._parts.append((which, age_s.astype(np.float32), place.astype(np.float32), mask.astype(bool)))

    def built(self) -> ContextRows:
        """Return all steps."""
        return ContextRows(np.stack(self._embeddings), *(np.concatenate(p) for p in zip(*self._parts, strict=True)))

    def _row(self, embedding: np.ndarray) -> int:
        row = self._known.setdefault(embedding.tobytes(), len(self._embeddings))
        if row == len(self._embeddings):
            self._embeddings.append(embedding.astype(np.float32))
        return row


def padded(array: np.ndarray, k: int, axis: int = 0) -> np.ndarray:
    """Return ``array`` with zeros behind it, ``k`` long along ``axis``."""
    behind = [(0, k - length if at == axis else 0) for at, length in enumerate(array.shape)]
    return np.pad(array, behind)


def beside(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the features of two batches one after the other, their entries padded to the same number."""
    k = max(batch[MEMORY_MASK_KEY].shape[1] for batch in (first, second))
    return {key: np.concatenate([padded(batch[key], k, axis=1) for batch in (first, second)]) for key in MEMORY_KEYS}
