"""Options of commands: those that would change nothing are refused, and so are files that cannot be written."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from engram.core.errors import InvalidInputError
from engram.core.paths import at_home


def chosen(config: Any, names: Iterable[str]) -> list[str]:
    """Return those of the fields ``names`` of the dataclass ``config`` that are not as by default."""
    usual = {field.name: field.default for field in fields(config)}
    return [name for name in names if getattr(config, name) != usual[name]]


def refuse(config: Any, names: Iterable[str], why: str) -> None:
    """Raise InvalidInputError, with the reason ``why``, if one of ``names`` was chosen: it would change nothing."""
    idle = [f"{type(config).__name__}.{name}: {getattr(config, name)}" for name in chosen(config, names)]
    if idle:
        raise InvalidInputError(f"{', '.join(idle)}: would change nothing{why}")


def writable(option: str, output: Path | str | None) -> Path | None:
    """Return the file ``output`` of ``option``, its folder made; None where none is asked for.

    To be called before the work, whose result would be lost.

    Raises:
        InvalidInputError: it is a folder, or cannot be written.
    """
    if output is None or not str(output):
        return None
    path = at_home(output)
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
