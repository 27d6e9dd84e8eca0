"""One writer per store: an advisory lock that the kernel releases when its process dies."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from engram.core.errors import StoreError, StoreLockedError

_NO_FOLDERS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP)
"""What a file system says that locks no folders."""


class WriterLock:
    """The lock of the folder ``store``, held from construction to :meth:`release`.

    The folder itself is locked, so a deleted lock file lets nobody in. The file says which process holds the lock. It
    is locked as well, for network file systems, which lock no folders.

    Raises:
        StoreLockedError: another writer holds it, naming its process id.
        StoreError: the folder cannot be made or written.
    """

    def __init__(self, store: Path, name: str = "writer.lock") -> None:
        self._store = store
        self._handles: list[int] = []
        try:
            store.mkdir(parents=True, exist_ok=True)
            self._handles.append(os.open(store, os.O_RDONLY | os.O_DIRECTORY))
            self._handles.append(os.open(store / name, os.O_RDWR | os.O_CREAT, 0o644))
            self._lock()
            os.ftruncate(self._handles[-1], 0)
            os.pwrite(self._handles[-1], str(os.getpid()).encode(), 0)
        except StoreError:
            self.release()
            raise
        except OSError as error:
            self.release()
            raise StoreError(f"{store}: cannot be written as a store: {error.strerror}") from error

    def check(self) -> None:
        """Raise StoreError if the folder was deleted or replaced: another writer may then write at its path."""
        if not self._handles:
            raise StoreError(f"{self._store}: already closed")
        try:
            found = os.stat(self._store)
        except OSError as error:
            raise StoreError(f"{self._store}: {error.strerror}; it was there when it was opened") from error
        if not os.path.samestat(found, os.fstat(self._handles[0])):
            raise StoreError(f"{self._store}: another folder has taken its place since it was opened")

    def release(self) -> None:
        """Let the next writer in; may be called twice."""
        while self._handles:
            os.close(self._handles.pop())

    def _lock(self) -> None:
        folder, file = self._handles
        try:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in _NO_FOLDERS:
                    raise
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, 32).decode(errors="replace").strip() or "unknown"
            raise StoreLockedError(
                f"{self._store}: already being written by process {holder}; one process at a time writes there"
            ) from None
