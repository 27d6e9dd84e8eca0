"""Paths as a user writes them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from engram.core.errors import EngramError, InvalidInputError


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


def check_apart(option: str, place: str, apart: Mapping[str, str | Path]) -> None:
    """Raise InvalidInputError if ``place``, given as ``option``, is a folder of ``apart`` or lies in one.

    ``apart``: folders that are read, by their options. What is written there would change them.
    """
    path = Path(os.path.realpath(place))
    around = [folder for folder in (path, *path.parents) if folder.exists()]
    for name, folder in apart.items():
        if os.path.exists(folder) and any(one.samefile(folder) for one in around):
            raise InvalidInputError(
                f"{option} {place!r}: lies in {name} {str(folder)!r}, which would be changed; choose another place"
            )


def check_new_folder(option: str, place: str, apart: Mapping[str, str | Path]) -> None:
    """Check that a folder can be written at ``place``, before the work whose result would be lost. Nothing is made.

    Raises:
        InvalidInputError: ``place`` is empty, lies in a folder of ``apart`` (see :func:`check_apart`), is a file or
            below one, or cannot be written.
    """
    if not place:
        raise InvalidInputError(f"{option} '': expected the name of a folder")
    check_apart(option, place, apart)
    there = _existing(Path(place))
    if not there.is_dir():
        raise InvalidInputError(f"{option} {place!r}: {there} is no folder; choose another place")
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise InvalidInputError(f"{option} {place!r}: {there} cannot be written: {error.strerror}") from None


def check_free(folder: Path, needed: int) -> None:
    """Raise EngramError if fewer than ``needed`` bytes are free where ``folder`` is, or will be made."""
    free = shutil.disk_usage(_existing(folder)).free
    if free < needed:
        raise EngramError(f"{folder}: {needed} bytes are needed on its disk, {free} are free; nothing was begun")


def _existing(path: Path) -> Path:
    """Return ``path``, or the nearest folder above it that is there."""
    return next(one for one in (path.absolute(), *path.absolute().parents) if os.path.lexists(one))
