"""Forks processes for tests from one that has imported what LeRobot needs of others: most of such a start is imports.

LeRobot itself and what is ours are imported by each process anew.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

IMPORTED = [
    "torch._dynamo", "torchvision.transforms.v2", "gymnasium", "accelerate", "datasets", "transformers.models.auto",
    "transformers.modeling_utils", "diffusers.optimization", "diffusers.models.transformers", "scipy.stats", "av",
    "draccus", "einops", "cv2", "pytest",
]  # fmt: skip
"""The only other thread that these begin is one of jemalloc, which provides for forks."""
FORKS = multiprocessing.get_context("forkserver")


def preload(names: list[str]) -> None:
    """Have the processes of ``FORKS`` forked from one that has imported ``names``."""
    server = forkserver._forkserver  # type: ignore[attr-defined]
    if server._preload_modules != names:
        server._stop()  # there is one at a time, and it has imported something else
        FORKS.set_forkserver_preload(names)


def spawn(function: Callable[..., None], args: tuple[Any, ...] = (), nprocs: int = 1) -> None:
    """Run ``function`` in ``nprocs`` processes, as ``torch.multiprocessing.spawn`` does; they are forked."""
    from torch.multiprocessing import start_processes

    preload(IMPORTED)
    start_processes(_forked, (function, os.getpid(), args), nprocs, start_method="forkserver")


def _forked(rank: int, function: Callable[..., None], client: int, args: tuple[Any, ...]) -> None:
    """Run ``function``; the parent that it is told of and ends with is the server, which ends with its ``client``."""
    function(rank, *(os.getppid() if each == client else each for each in args))


def python(*words: str, folder: Path, timeout: float = 280.0) -> subprocess.CompletedProcess[str]:
    """Run ``python`` with these ``words``, of which the first is -c or -m, and keep what it prints in ``folder``."""
    process, files = begin(*words, folder=folder)
    process.join(timeout)
    if process.exitcode is None:
        process.kill()
        raise subprocess.TimeoutExpired(words, timeout)
    return subprocess.CompletedProcess(words, process.exitcode, *(file.read_text() for file in files))


def begin(*words: str, folder: Path) -> tuple[multiprocessing.process.BaseProcess, tuple[Path, Path]]:
    """Begin what ``python`` runs; return the process, and the files with what it prints and with its errors."""
    preload(IMPORTED)
    files = folder / "stdout.txt", folder / "stderr.txt"
    process = FORKS.Process(target=_be, args=(words, *files))
    process.start()
    return process, files


def _be(words: tuple[str, ...], *files: Path) -> None:
    for number, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    kind, what, *more = words
    sys.argv = [kind, *more]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<script>", "exec"), {"__name__": "__main__"})
