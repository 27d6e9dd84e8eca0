"""Where a figure comes from: the commit of the code and the machine that ran it."""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FunctionType
from typing import Any

SHIPPED = ("engram.", "builtins")
"""How the modules begin that a user does not write."""


def commit() -> str:
    """Return the commit of the code that runs, with ``+`` when files were changed since; empty outside a repository."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=False).stdout.strip()

    return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


def command_line() -> str:
    """Return the command that this process runs, as it would be typed: ``engram bench loop``, ``python -m module``."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = spec.name.removesuffix(".__main__") if spec is not None else ""
    return " ".join([f"python -m {name}" if name else Path(sys.argv[0]).name, *sys.argv[1:]])


def digest(*patterns: str) -> str:
    """Return 12 hex digits that change when a file of the package changes that one of ``patterns`` means.

    >>> len(digest("core/*.py"))
    12
    """
    root, total = Path(__file__).resolve().parents[1], hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in root.glob(pattern) if path.is_file()}):
        total.update(f"{path.relative_to(root)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()[:12]


def source_files(things: Iterable[object]) -> list[Path]:
    """Return the files in which ``things`` are written, and the classes that they extend; not those of Engram itself.

    A thing is a function, a class, or something of a class.
    """
    kinds = {kind for thing in things for kind in _written(thing)}
    files = {_source_file(kind) for kind in kinds if not kind.__module__.startswith(SHIPPED)}
    return sorted(Path(file).resolve() for file in files - {""})


def _written(thing: object) -> tuple[Any, ...]:
    if isinstance(thing, FunctionType):
        return (thing,)
    return (thing if isinstance(thing, type) else type(thing)).__mro__


def _source_file(written: Any) -> str:
    try:
        return inspect.getsourcefile(written) or ""
    except (OSError, TypeError):  # it is compiled, or was typed in
        return ""


def source_digest(things: Iterable[object]) -> str:
    """Return 12 hex digits that change when one of the :func:`source_files` of ``things`` changes."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in source_files(things))).hexdigest()[:12]


def machine() -> str:
    """Return processor, number of CPUs, operating system, Python and the load of the last minute, in words."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    return (
        f"{model or platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, {platform.system()} "
        f"{platform.machine()}, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )


def dataset_hash(root: str | Path) -> str:
    """Return the sha256 over names and contents of all parquet and metadata files, in sorted order."""
    digest = hashlib.sha256()
    root = Path(root)
    for path in sorted({*root.rglob("*.parquet"), *root.glob("meta/*.json*")}):
        digest.update(f"{path.relative_to(root).as_posix()}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
