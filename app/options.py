"""Options of commands: those that would change nothing are refused, and so is what cannot be written, or asked."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Container, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from engram.core.errors import InvalidInputError
from engram.core.paths import at_home, check_apart
from engram.core.words import is_encodable

_NAMESPACE = re.compile(r"/?|(/?[A-Za-z_][A-Za-z0-9_]*)(/[A-Za-z_][A-Za-z0-9_]*)*")
"""What rclpy takes for a node's namespace."""
LONGEST_NAMESPACE = 100
"""The names of topics and services, at most 247 characters, begin with it."""


def chosen(config: Any, names: Iterable[str]) -> list[str]:
    """Return those of the fields ``names`` of the dataclass ``config`` that are not as by default."""
    usual = {field.name: field.default for field in fields(config)}
    return [name for name in names if getattr(config, name) != usual[name]]


def refuse(config: Any, names: Iterable[str], why: str) -> None:
    """Raise InvalidInputError, with the reason ``why``, if one of ``names`` was chosen: it would change nothing."""
    idle = [f"{type(config).__name__}.{name}: {getattr(config, name)}" for name in chosen(config, names)]
    if idle:
        raise InvalidInputError(f"{', '.join(idle)}: would change nothing{why}")


def writable(option: str, output: Path | str | None, apart: Mapping[str, Path] | None = None) -> Path | None:
    """Return the file ``output`` of ``option``, its folder made; None where none is asked for.

    To be called before the work, whose result would be lost. ``apart``: folders that the work reads, by what they are.

    Raises:
        InvalidInputError: it is a folder, cannot be written, or lies in a folder of ``apart``, which it would change.
    """
    if output is None or not str(output):
        return None
    path = at_home(output)
    check_apart(option, str(path), apart or {})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise InvalidInputError(f"{option}: {path} is a folder, expected a file")
        if path.exists():
            path.open("ab").close()  # changes nothing
        else:
            tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise InvalidInputError(f"{option}: {path} cannot be written: {error.strerror}") from None
    return path


def check_asking(config: Any) -> None:
    """Raise InvalidInputError if ``config``, which asks running nodes, holds what ROS cannot take.

    That is a ``namespace`` that can be none, a ``timeout_s`` that never ends or has ended before, and words that are no
    UTF-8.
    """
    kind = type(config).__name__
    for field in fields(config):
        value = getattr(config, field.name)
        if isinstance(value, str) and not is_encodable(value):
            raise InvalidInputError(f"{kind}.{field.name}: {value!r}, expected text in UTF-8")
    if not _NAMESPACE.fullmatch(config.namespace) or len(config.namespace) > LONGEST_NAMESPACE:
        raise InvalidInputError(
            f"{kind}.namespace: {config.namespace!r}, expected at most {LONGEST_NAMESPACE} letters, digits and _, in "
            "parts that / separates and none of which begins with a digit, such as r1"
        )
    if not 0.0 < config.timeout_s < math.inf:
        raise InvalidInputError(f"{kind}.timeout_s: {config.timeout_s}, expected a finite number of seconds above 0")


def new_folder(option: str, folder: Path, unfinished: Container[str] = ()) -> Path:
    """Return the ``folder`` of ``option``, made; ``unfinished`` is what one may hold that is gone on with.

    To be called before the work, whose result would replace what lies there.

    Raises:
        InvalidInputError: it holds other files, or cannot be written.
    """
    path = at_home(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        other = sorted(one.name for one in path.iterdir() if one.name not in unfinished and not _is_empty(one))
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise InvalidInputError(f"{option}: {path} cannot be written: {error.strerror}") from None
    if other:
        raise InvalidInputError(f"{option}: {path} holds other files ({', '.join(other[:3])}); name a new folder")
    return path


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def with_home(config: Any) -> Any:
    """Return the dataclass ``config``, in which ``~/`` at the begin of what was given stands for the home folder.

    A shell does so only at the begin of a word, and not in ``--output=~/report.json``.
    """
    if not is_dataclass(config) or isinstance(config, type):
        return config
    given = {field.name: (getattr(config, field.name), field.default) for field in fields(config) if field.init}
    changed = {name: _at_home(value) for name, (value, usual) in given.items() if value != usual}
    changed = {name: value for name, value in changed.items() if value != given[name][0]}
    return replace(config, **changed) if changed else config


def _at_home(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_at_home, value))
    if isinstance(value, Path):
        return at_home(value)
    return str(at_home(value)) if isinstance(value, str) and f"{value}/".startswith("~/") else value
