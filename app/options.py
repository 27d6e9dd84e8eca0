"""Options of commands that would change nothing: a command refuses them, rather than leave them without effect."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from engram.core.errors import InvalidInputError


def chosen(config: Any, names: Iterable[str]) -> list[str]:
    """Return those of the fields ``names`` of the dataclass ``config`` that are not as by default."""
    usual = {field.name: field.default for field in fields(config)}
    return [name for name in names if getattr(config, name) != usual[name]]


def refuse(config: Any, names: Iterable[str], why: str) -> None:
    """Raise InvalidInputError, with the reason ``why``, if one of ``names`` was chosen: it would change nothing."""
    idle = [f"{type(config).__name__}.{name}: {getattr(config, name)}" for name in chosen(config, names)]
    if idle:
        raise InvalidInputError(f"{', '.join(idle)}: would change nothing{why}")
