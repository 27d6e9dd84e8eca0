"""Files that survive a crash and a power cut: the system is told to write them to the disk, and their names too.

A disk may also change what lies on it: what is sealed is found out then.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any


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


def seal(state: Any) -> bytes:
    """Return ``state`` as JSON text with its CRC-32, for :func:`unseal`."""
    return json.dumps({"state": state, "crc32": _checksum(state)}).encode()


def unseal(data: bytes) -> Any:
    """Return what :func:`seal` made ``data`` of.

    Raises:
        ValueError, TypeError, LookupError, RecursionError: it is damaged, or was never sealed.
    """
    kept = json.loads(data)
    if not isinstance(kept, dict) or kept.keys() != {"state", "crc32"}:
        raise ValueError("it has no checksum")
    if kept["crc32"] != _checksum(kept["state"]):
        raise ValueError("its checksum does not fit")
    return kept["state"]


def _checksum(state: Any) -> int:
    return zlib.crc32(json.dumps(state, sort_keys=True).encode())
