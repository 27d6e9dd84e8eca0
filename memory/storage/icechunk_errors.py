"""Rust panics of icechunk, which some damaged bytes cause, as ordinary exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raise ValueError where icechunk panics, so that damage is told and repaired like any other."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # pyo3 makes the class; nothing exports it
            raise ValueError(f"icechunk panicked: {error}") from error
        raise
