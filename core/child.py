"""Child processes that do not outlive their parent."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from multiprocessing.pool import Pool

from engram.core.notices import hush_datasets

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)  # loaded here: between fork and exec it would be too late


def end_with_parent(parent: int) -> None:
    """Called in a child process: the kernel sends it SIGTERM when ``parent`` dies, even by kill -9.

    If the parent has died already, end now.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGTERM)


def spawned_pool(processes: int, tasks_per_child: int | None = None) -> Pool:
    """Return a pool of fresh processes that end with this one. Those of a plain pool work on after SIGTERM."""
    context = multiprocessing.get_context("spawn")
    return context.Pool(processes, _begin, (os.getpid(),), maxtasksperchild=tasks_per_child)


def _begin(parent: int) -> None:
    end_with_parent(parent)
    hush_datasets()  # what the parent's command has switched off is on again in a fresh process
