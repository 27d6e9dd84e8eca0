"""Which process runs a node, for whoever has to end it when it hangs.

A mark is a file that its process holds locked. The kernel releases the lock with the process, so that a mark never
names another process that got the same id. What is said on the network plays no part in it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path

TRIES = 20
"""How often a mark is tried to lock, every 10 ms."""


def marks_folder() -> Path:
    """Return the folder of this user's marks."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"engram-nodes-{os.getuid()}"


def _open_mark(node: str, domain: int, flags: int) -> int:
    """Open the mark of ``node``; raises OSError where there is none, or where somebody else could have put it."""
    folder = marks_folder()
    if folder.lstat().st_uid != os.getuid():
        raise PermissionError(f"{folder}: not ours")
    return os.open(folder / f"{domain}{node.replace('/', '.')}", flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


class ProcessMark:
    """Marks this process as the one that runs ``node`` (its full name) on ``domain``, until it ends.

    Where nothing can be written, or another process runs a node of that name, there is no mark. The node works all the
    same; only nobody can end it when it hangs.
    """

    def __init__(self, node: str, domain: int) -> None:
        self._file = -1
        with suppress(OSError):
            marks_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
            file = _open_mark(node, domain, os.O_RDWR | os.O_CREAT)
            if not _lock(file):
                os.close(file)
                return
            os.ftruncate(file, 0)
            os.pwrite(file, str(os.getpid()).encode(), 0)
            self._file = file

    def release(self) -> None:
        """Take the mark away; may be called twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _lock(file: int) -> bool:
    """Lock ``file``; tells whether nobody else has it. Who looks whether it is locked has it for an instant."""
    for _ in range(TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.01)
    return False


def has_ended(node: str, domain: int) -> bool:
    """Tell whether the last process of this machine that ran ``node`` on ``domain`` has ended; False: nobody knows."""
    try:
        file = _open_mark(node, domain, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _is_locked(file)
    finally:
        os.close(file)


def running_process(node: str, domain: int) -> int | None:
    """Return the id of the process of this machine that runs ``node`` on ``domain``; None: none is known."""
    try:
        file = _open_mark(node, domain, os.O_RDONLY)
    except OSError:
        return None
    try:
        return int(os.read(file, 32)) if _is_locked(file) else None
    except (OSError, ValueError):
        return None
    finally:
        os.close(file)


def end_process(node: str, domain: int) -> int | None:
    """Kill the process that runs ``node`` on ``domain``; return its id, or None if none on this machine is known."""
    try:
        file = _open_mark(node, domain, os.O_RDONLY)
    except OSError:
        return None
    try:
        pid = int(os.read(file, 32))
        process = os.pidfd_open(pid)  # from here on this very process, whoever gets the id later
    except (OSError, ValueError):
        os.close(file)
        return None
    try:
        if not _is_locked(file):
            return None
        signal.pidfd_send_signal(process, signal.SIGKILL)
        return pid
    finally:
        os.close(process)
        os.close(file)


def _is_locked(file: int) -> bool:
    """Tell whether the process that made the mark lives."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False
