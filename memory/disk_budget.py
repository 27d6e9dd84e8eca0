"""How much of the store's past may stay on disk."""

from __future__ import annotations

import os
from pathlib import Path

_FULL, _THINNED = 0.9, 0.6
"""Shares of the budget: from the first on snapshots go, down to about the second."""
_LONGEST = 100  # commits
_CAUTION = 8
"""Commits may come to be so many times as large as those that were counted: a memory's grow with what it knows."""


class DiskBudget:
    """Counts a folder's bytes, but only when the budget may be near: by the growth that was seen last."""

    def __init__(self, folder: Path, budget_bytes: int) -> None:
        self._folder, self._budget = folder, budget_bytes
        self._size = 0  # when it was counted last
        self._since = 0  # commits since then
        self._due = 1  # commits after which it is counted again

    def share(self) -> float:
        """Return, after a commit, the share of the snapshots that may stay: 1 within the budget."""
        self._since += 1
        if self._since < self._due:
            return 1.0
        size = bytes_in(self._folder)
        growth = max(1, (size - self._size) // self._since)
        shrunk = size < self._size  # by an expiry: what the commits added since is not known
        room = int(_FULL * self._budget) - size
        self._due = 1 if shrunk else min(_LONGEST, max(1, room // (_CAUTION * growth)))
        self._size, self._since = size, 0
        return 1.0 if room > 0 else _THINNED * self._budget / size


def bytes_in(folder: Path) -> int:
    """Return the size of all files in ``folder``; one that goes meanwhile counts nothing."""
    total = 0
    for inside, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(inside, name)).st_size
            except FileNotFoundError:
                continue
    return total
