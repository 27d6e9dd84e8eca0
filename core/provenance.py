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


def source_digest(things: Iterable[type]) -> str:
    """Return 12 hex digits that change when a file changes in which one of these classes is written."""
    files = sorted({inspect.getsourcefile(thing) or "" for thing in things} - {""})
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()[:12]


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
