"""Removes the Fast DDS segments that dead processes left in /dev/shm: a killed node leaves about 70 MB there.

Fast DDS keeps each segment in a file, and beside it a lock file (``_el``, ``_sl``) on which its process holds a flock
for as long as it lives. A file whose lock nobody holds is garbage. eProsima's ``fastdds shm clean``, which the wheels
lack, uses the same rule. The kernel frees a lock with its process, however that ended.

A segment's name is its process's alone. The files of ports (50 kB) have names that the next process takes up again, and
Fast DDS tidies them itself. Who removed one at that moment would leave that process in a file that no other one finds:
it would never be discovered. So ports stay.
"""

from __future__ import annotations

import fcntl
import re
import time
from contextlib import ExitStack
from pathlib import Path

FOLDER = Path("/dev/shm")
LOCK_FILE = re.compile(r"(fastdds_[0-9a-f]{16})_[es]l")
YOUNG_S = 10.0
"""Younger lock files are left alone: their process may not have come to locking them yet [s]."""


def remove_dead_files(folder: Path = FOLDER, young_s: float = YOUNG_S) -> tuple[int, int]:
    """Remove what dead processes left; returns how many segments that were and their size [bytes]."""
    return _visit(folder, young_s, remove=True)


def dead_files(folder: Path = FOLDER, young_s: float = YOUNG_S) -> tuple[int, int]:
    """Count what dead processes left: segments, and their size [bytes]."""
    return _visit(folder, young_s, remove=False)


def _visit(folder: Path, young_s: float, *, remove: bool) -> tuple[int, int]:
    owned: dict[str, list[Path]] = {}  # segment -> its lock files
    for path in folder.iterdir() if folder.is_dir() else ():
        if (match := LOCK_FILE.fullmatch(path.name)) is not None:
            owned.setdefault(match[1], []).append(path)
    count = size = 0
    for name, locks in owned.items():
        with ExitStack() as held:
            if not all(_lock(path, young_s, held) for path in locks):
                continue
            files = [path for path in (folder / name, *locks) if path.exists()]
            count, size = count + 1, size + sum(path.stat().st_blocks * 512 for path in files)
            if remove:  # while the locks are ours, so that no new process begins to use what goes away
                for path in files:
                    path.unlink(missing_ok=True)
    return count, size


def _lock(path: Path, young_s: float, held: ExitStack) -> bool:
    """Take the lock that a living process would hold, until ``held`` closes; False: it lives, or is not ours to say."""
    try:
        file = held.enter_context(path.open("rb+"))
        if time.time() - path.stat().st_mtime < young_s:
            return False
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
