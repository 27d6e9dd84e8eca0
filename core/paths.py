"""Paths as a user writes them."""

from __future__ import annotations

from pathlib import Path

from engram.core.errors import InvalidInputError


def at_home(path: str | Path) -> Path:
    """Return ``path``, in which a leading ``~`` stands for the home folder, as in a shell.

    Raises:
        InvalidInputError: ``~name`` of nobody.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise InvalidInputError(f"{path}: {error}") from None
