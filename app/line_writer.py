"""Lines for a terminal that may not be read: a thread of their own writes them, and nobody waits for it."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

QUEUED_MAX = 1 << 22
"""Characters that wait for a reader at most; beyond it the oldest lines are left out."""
BLOCK = 4096
"""Bytes that are written at once: where poll says that a pipe takes some, it takes as many."""
GIVE_UP_S = 1.0
"""How long the last lines wait at the end for a stream that takes nothing [s]."""
CLOSE_MAX_S = 5.0
"""How long the end waits at most, however slowly the stream goes on [s]."""
LOOK_S = 0.1


class LineWriter:
    """Writes lines to ``stream`` in the order in which they come. No caller waits for who reads the stream.

    While nobody reads it (``engram up | less``, Ctrl-S), lines wait here. When there are too many, the oldest are left
    out and counted. What ``told`` makes of their number is written in their place. A stream that breaks
    (``engram up | head``) takes no more.
    """

    def __init__(self, stream: TextIO, told: Callable[[int], str]) -> None:
        self._stream, self._told = stream, told
        with contextlib.suppress(OSError, ValueError):
            stream.flush()  # what was printed before comes before
        try:
            self._fd: int | None = os.dup(stream.fileno())
        except (OSError, ValueError):  # it is no file of the system, such as a StringIO
            self._fd = None
        self._changed = threading.Condition()  # on an RLock: a signal handler may say something, too
        self._lines: deque[str] = deque()
        self._size = self._left_out = 0
        self._ending = self._given_up = self._ended = False
        self._moved_s = time.monotonic()  # when the stream took something
        self._thread = threading.Thread(target=self._run, name="line writer", daemon=True)
        self._thread.start()

    def put(self, line: str) -> None:
        """Let ``line`` be written as soon as the stream takes it."""
        with self._changed:
            if self._ended or self._ending:
                return
            self._lines.append(f"{line}\n")
            self._size += len(self._lines[-1])
            while self._size > QUEUED_MAX and len(self._lines) > 1:
                self._size -= len(self._lines.popleft())
                self._left_out += 1
            self._changed.notify()

    def close(self) -> None:
        """Write the lines that wait, for as long as the stream takes some."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        began_s = self._moved_s = time.monotonic()
        while self._thread.is_alive():
            now_s = time.monotonic()
            if now_s - self._moved_s > GIVE_UP_S or now_s - began_s > CLOSE_MAX_S:
                break
            self._thread.join(LOOK_S)
        self._given_up = True
        self._thread.join(2 * LOOK_S)

    def _run(self) -> None:
        try:
            while text := self._next():
                self._write(text)
        except (OSError, ValueError):  # nobody will read it any more
            pass
        finally:
            with self._changed:
                self._ended = True
                self._lines.clear()
            if self._fd is not None:
                os.close(self._fd)

    def _next(self) -> str:
        """Wait for lines, and return some; empty at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._ending)
            taken = [f"{self._told(self._left_out)}\n"] if self._left_out else []
            self._left_out = 0
            size = 0
            while self._lines and size < BLOCK:
                taken.append(self._lines.popleft())
                size += len(taken[-1])
            self._size -= size
            return "" if self._given_up else "".join(taken)

    def _write(self, text: str) -> None:
        """Write past the stream's own buffer: a thread that hangs in it would not let the interpreter end."""
        if self._fd is None:
            self._stream.write(text)
            self._stream.flush()
            return
        ready = select.poll()
        ready.register(self._fd, select.POLLOUT)
        rest = memoryview(text.encode(self._stream.encoding or "utf-8", "replace"))
        while rest and not self._given_up:
            if ready.poll(1000 * LOOK_S):
                with contextlib.suppress(BlockingIOError):
                    rest = rest[os.write(self._fd, rest[:BLOCK]) :]
                    self._moved_s = time.monotonic()
