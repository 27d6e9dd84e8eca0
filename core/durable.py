"""Files that survive a crash and a power cut: the system is told to write them to the disk, and their names too."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomic(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``: readers and crashes see the old file or the new one, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
    sync(path.parent)


def sync(path: Path | str) -> bool:
    """Make a file, or the names in a folder, durable; return False for what is not there any more."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    return True
