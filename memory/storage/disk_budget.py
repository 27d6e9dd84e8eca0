"""Disk budget: how many past snapshots may stay."""

from __future__ import annotations

import os
from pathlib import Path

_FULL, _THINNED = 0.9, 0.6
"""Shares of the budget: from the first on snapshots go, down to about the second."""
_LONGEST = 100  # commits between two countings, should another process write there


class DiskBudget:
    """Counts a folder's bytes, but only when this process has written as much as there was room for.

    Snapshots go while there is room for one more commit of a tenth of the budget: only a larger one can pass it.
    """

    def __init__(self, folder: Path, budget_bytes: int) -> None:
        self._folder, self._budget = folder, budget_bytes
        self._until = 0  # bytes written by this process, after which it is counted again
        self._since = 0  # commits since it was counted last

    def share(self) -> float:
        """Return, after a commit or an expiry, the share of the snapshots that may stay: 1 within the budget."""
        self._since += 1
        written = written_bytes()
        if written is not None and written < self._until and self._since < _LONGEST:
            return 1.0
        size = bytes_in(self._folder)
        room = int(_FULL * self._budget) - size
        self._until, self._since = (written or 0) + room, 0
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


def written_bytes() -> int | None:
    """Return how much this process has written so far, into whatever files; None where the system does not tell."""
    try:
        words = Path("/proc/self/io").read_text().split()  # see proc_pid_io(5)
        return int(words[words.index("wchar:") + 1])
    except (OSError, ValueError):
        return None
