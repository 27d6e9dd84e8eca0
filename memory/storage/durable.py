"""Files that survive a power cut: the system is told to write them to the disk, and their names too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from engram.core.durable import sync
from engram.core.errors import StoreError


class FolderSync:
    """Makes durable what was written into ``folder`` since the last call.

    A file inside a subfolder never changes once it has its name, as icechunk's do not, so only new names are synced
    there; files directly in ``folder`` are synced when they were replaced or written to.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, set[str]] = {}  # subfolder -> names that are durable
        self._top: dict[str, tuple[int, int]] = {}  # file in the folder -> inode, modification time

    def __call__(self) -> int:
        """Sync; return how many files there were to sync."""
        count = 0
        for inside, _, names in os.walk(self._folder):
            if inside != str(self._folder):
                count += self._sync_new(inside, set(names))
        for name in os.listdir(self._folder):  # last: they refer to the others
            path = self._folder / name
            if path.is_file():
                state = path.stat()
                mark = (state.st_ino, state.st_mtime_ns)
                if self._top.get(name) != mark:
                    sync(path)
                    self._top[name] = mark
                    count += 1
        if count:
            sync(self._folder)
        return count

    def _sync_new(self, folder: str, names: set[str]) -> int:
        new = names - self._known.get(folder, set())
        gone = [name for name in sorted(new) if not sync(os.path.join(folder, name))]
        if new or folder not in self._known:
            sync(folder)
        self._known[folder] = names.difference(gone)
        return len(new) - len(gone)


def sync_with_parents(folder: Path) -> None:
    """Make ``folder`` durable, and its name in the folders above."""
    sync(folder)
    for parent in folder.resolve().parents:
        with suppress(OSError):  # one that we may not open was there before
            sync(parent)


def replace_file(path: Path, data: bytes, *, durable: bool) -> None:
    """Put ``data`` in the place of ``path``: whoever reads sees the old file or the new one, whole."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_bytes(data)
    if durable:
        sync(temporary)
    os.replace(temporary, path)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a file beside ``path`` to write to; when it is complete and durable, it takes the place of ``path``.

    Where anything fails, ``path`` stays as it was, and nothing is left beside it.

    Raises:
        StoreError: naming ``path``, where the disk refuses something.
    """
    partial = path.with_name(f"{path.stem}.{os.getpid()}.partial{path.suffix}")  # writers choose a format by the suffix
    try:
        try:
            yield partial
            sync(partial)
            os.replace(partial, path)
            sync(path.parent)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{path}: not written: {error.strerror or error}") from error
