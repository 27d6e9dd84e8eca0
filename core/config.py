"""YAML -> flat frozen dataclasses; unknown keys and wrong types are errors that list what is valid."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from engram.core.errors import InvalidInputError, unknown_name


def from_mapping[T](cls: type[T], values: Mapping[str, Any]) -> T:
    """Build the frozen dataclass ``cls`` from ``values``; missing fields take their defaults.

    Raises:
        UnknownNameError: a key is no field of ``cls``.
        InvalidInputError: a value has another type than the field's default.
    """
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    converted: dict[str, Any] = {}
    for key, value in values.items():
        if key not in fields:
            raise unknown_name(f"{cls.__name__} field", key, fields)
        converted[key] = _convert(f"{cls.__name__}.{key}", value, fields[key].default)
    return cls(**converted)


def _convert(name: str, value: Any, default: Any) -> Any:
    if default is dataclasses.MISSING or default is None:
        return value
    if isinstance(default, tuple) and isinstance(value, list | tuple):
        return tuple(value)
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(default):
        raise InvalidInputError(f"{name}: {value!r} is {type(value).__name__}, expected {type(default).__name__}")
    return value


def load_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping; an empty file is an empty mapping."""
    try:
        data = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        near = sorted(p.name for p in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
        raise InvalidInputError(f"{path}: no such file; there: {', '.join(near) or '(nothing)'}") from None
    except yaml.YAMLError as error:
        raise InvalidInputError(f"{path}: not YAML: {error}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise InvalidInputError(f"{path}: a {type(data).__name__} at top level, expected a mapping")
    return data
