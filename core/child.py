"""Child processes that do not outlive their parent."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)  # loaded here: between fork and exec it would be too late


def end_with_parent() -> None:
    """In the child: be told to end (SIGTERM) when the parent dies, even by kill -9; nobody is left behind."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
