"""What a part tells of its own condition; the nodes show it in their diagnostics."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class Monitor(Protocol):
    """Takes counters, stage times and problems; callable from any thread."""

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""

    def problem(self, key: str, text: str) -> None:
        """Note a problem; a later one with the same ``key`` replaces it."""

    def clear(self, key: str) -> None:
        """A problem is over."""

    def seconds(self, stage: str, duration_s: float) -> None:
        """Add one duration [s] of ``stage``."""

    def timed(self, stage: str) -> AbstractContextManager[None]:
        """Time a block as ``stage``."""
