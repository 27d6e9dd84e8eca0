"""The fixed parts of a home, from a YAML file: buildings, rooms and places as boxes."""

from __future__ import annotations

from pathlib import Path

import yaml

from engram.core.errors import InvalidInputError, unknown_name
from engram.core.types import SceneNode
from engram.memory.graph_memory import known_place

_KEYS = ("layer", "label", "centre", "size")
_LAYERS = ("building", "room", "place")


def read_places(path: Path) -> tuple[SceneNode, ...]:
    """Return the places of a file: a list of ``{layer, label, centre: [x, y, z], size: [x, y, z]}``, in metres.

    Raises:
        InvalidInputError: the file is missing or an entry is not of that form; names the entry.
        UnknownNameError: another layer; lists the valid ones.
    """
    try:
        entries = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise InvalidInputError(f"{path}: {error}") from error
    if not isinstance(entries, list):
        raise InvalidInputError(f"{path}: {type(entries).__name__}, expected a list of places")
    return tuple(_place(path, entry) for entry in entries)


def _place(path: Path, entry: object) -> SceneNode:
    if not isinstance(entry, dict) or set(entry) != set(_KEYS):
        raise InvalidInputError(f"{path}: {entry!r}, expected the keys {', '.join(_KEYS)}")
    if entry["layer"] not in _LAYERS:
        raise unknown_name("layer of a place", entry["layer"], _LAYERS)
    for key in ("centre", "size"):
        if not (isinstance(entry[key], list) and len(entry[key]) == 3):
            raise InvalidInputError(f"{path}: {entry['label']!r} {key} {entry[key]!r}, expected 3 numbers [m]")
    return known_place(entry["layer"], str(entry["label"]), entry["centre"], entry["size"])
