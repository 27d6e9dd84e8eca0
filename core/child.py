"""Child processes that do not outlive their parent."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)  # loaded here: between fork and exec it would be too late


def end_with_parent(parent: int) -> None:
    """In the child of process ``parent``: be told to end (SIGTERM) when that dies, even by kill -9; nobody is left
    behind. If it has died already, end now."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGTERM)
