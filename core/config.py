"""YAML files; what is none is an error that names the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from engram.core.errors import InvalidInputError


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
