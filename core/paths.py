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


def is_on_hub(name: str) -> bool:
    """Return whether ``name`` can only be owner/name on the Hugging Face hub: of that form, and no folder."""
    return name.count("/") == 1 and not name.startswith((".", "/", "~")) and not Path(name).is_dir()
