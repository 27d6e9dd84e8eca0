"""One writer per store: an advisory lock that the kernel releases when its process dies."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from engram.core.errors import StoreError, StoreLockedError

_NO_FOLDERS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP)
"""What a file system says that locks no folders."""
_ATTEMPTS = 100
"""How often a folder is locked anew that others removed meanwhile, before it counts as one that cannot be made."""


class WriterLock:
    """The lock of the folder ``store``, held from construction to :meth:`release`.

    The folder itself is locked, so a deleted lock file lets nobody in. The file says which process holds the lock. It
    is locked as well, for network file systems, which lock no folders.

    Raises:
        StoreLockedError: another writer holds it, naming its process id.
        StoreError: the folder cannot be made or written.
    """

    def __init__(self, store: Path, name: str = "writer.lock") -> None:
        self._store, self._file = store, store / name
        self._handles: list[int] = []
        self._made: list[Path] = []
        self._held = False
        try:
            self._take()
            os.ftruncate(self._handles[-1], 0)
            os.pwrite(self._handles[-1], str(os.getpid()).encode(), 0)
        except StoreError:
            self.release()
            raise
        except OSError as error:
            self.release(tidy=True)
            self._remove_made()
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

    def release(self, *, tidy: bool = False) -> None:
        """Let the next writer in; may be called twice.

        ``tidy``: where nothing but the lock file is in the folder, that file is removed, and so are the folders that
        this lock made.
        """
        if tidy and self._held:
            with suppress(StoreError, OSError):
                self.check()
                if os.listdir(self._store) == [self._file.name]:
                    self._file.unlink()
                    self._remove_made()
        self._held = False
        while self._handles:
            os.close(self._handles.pop())

    def _take(self) -> None:
        """Make folder and file where they are missing, and lock both.

        Whoever held the lock may remove both after they were opened here (see :meth:`release`). Then they are locked
        anew: a lock on what was removed would keep nobody out.
        """
        for left in reversed(range(_ATTEMPTS)):
            try:
                self._make_folders()
                self._handles.append(os.open(self._store, os.O_RDONLY | os.O_DIRECTORY))
                self._handles.append(os.open(self._file, os.O_RDWR | os.O_CREAT, 0o644))
                self._lock()
                self._held = all(map(_is_at, (self._store, self._file), self._handles))
                if self._held:
                    return
            except FileNotFoundError:
                if not left:
                    raise
            self.release()
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    def _make_folders(self) -> None:
        for folder in reversed((self._store, *self._store.parents)):
            if not folder.is_dir():
                with suppress(FileExistsError):  # another process was quicker, or it is no folder
                    folder.mkdir()
                    self._made.append(folder)

    def _remove_made(self) -> None:
        """Remove the folders that this lock made, unless somebody has put something there."""
        with suppress(OSError):
            for folder in reversed(self._made):
                folder.rmdir()

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


def _is_at(path: Path, handle: int) -> bool:
    return os.path.samestat(os.stat(path), os.fstat(handle))
