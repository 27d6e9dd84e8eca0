"""Errors of icechunk and the disk as ours; Rust panics of icechunk, which some damaged bytes cause, as exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import icechunk

from engram.core.errors import StoreError


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raise ValueError where icechunk panics, so that damage is told and repaired like any other."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # pyo3 makes the class; nothing exports it
            raise ValueError(f"icechunk panicked: {error}") from error
        raise


@contextmanager
def store_errors(path: Path, what: str) -> Iterator[None]:
    """Raise StoreError, beginning with ``path`` and ``what`` failed, where the disk or icechunk refuses something."""
    try:
        with panics_as_errors():
            yield
    except (OSError, icechunk.IcechunkError) as error:
        raise StoreError(f"{path}: {what}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """Return the type of ``error`` and the first line of what it says."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error).strip() else ''}"
