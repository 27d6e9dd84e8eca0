"""The line of ``engram do`` while it waits: how long, what the robot does, how near it is, whose weights act."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import TextIO

from engram.runtime.goal_words import WAITING, Standing

REWRITE_S = 0.2
"""Time between two looks at the line on a terminal [s]."""
CLEAR = "\r\x1b[K"
"""Goes back to the beginning of the terminal's line and empties it."""


class GoalLine:
    """Rewrites one line of ``stream`` if that is a terminal; else prints a line at each change of phase.

    Args:
        stream: where it is shown.
        clock: tells the time [s].
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._rewrites = stream.isatty()
        self._standing = Standing(WAITING)
        self._began, self._shown = clock(), ""
        self._at = self._began - REWRITE_S  # when it was shown last

    def take(self, standing: Standing) -> None:
        """Take in how the goal stands."""
        changed = standing.phase != self._standing.phase
        self._standing = standing
        if changed and not self._rewrites:
            print(self._text(), file=self._stream, flush=True)

    def tick(self) -> None:
        """Show the time that went by; to be called all the while."""
        if not self._rewrites or self._clock() - self._at < REWRITE_S:
            return
        self._at, text = self._clock(), self._text()
        text = text[: shutil.get_terminal_size().columns - 1]  # a line that is broken cannot be rewritten
        if text != self._shown:
            self._shown = text
            self._stream.write(f"{CLEAR}{text}")
            self._stream.flush()

    def end(self) -> None:
        """Make way for the outcome."""
        if self._shown:
            self._stream.write(CLEAR)
            self._stream.flush()

    def _text(self) -> str:
        return f"{self._clock() - self._began:.0f} s: {self._standing.words()}"
