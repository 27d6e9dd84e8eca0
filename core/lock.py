"""One writer per store: an advisory lock that the kernel releases when its process dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from engram.core.errors import StoreError, StoreLockedError


class WriterLock:
    """The lock of the folder ``store``, held from construction to :meth:`release`.

    Raises:
        StoreLockedError: another writer holds it, naming its process id.
        StoreError: the folder cannot be made or written.
    """

    def __init__(self, store: Path, name: str = "writer.lock") -> None:
        try:
            store.mkdir(parents=True, exist_ok=True)
            self._file = os.open(store / name, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"{store}: cannot be written as a store: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._file, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise StoreLockedError(
                f"{store}: already being written by process {holder}; a store has one writer at a time"
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Let the next writer in; may be called twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
