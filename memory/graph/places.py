"""The fixed parts of a home: buildings, rooms and places as boxes, from code or from a YAML file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml

from engram.core.errors import InvalidInputError, unknown_name
from engram.core.types import EMBEDDING_DIM, Pose, SceneNode

_KEYS = ("layer", "label", "centre", "size")
_LAYERS = ("building", "room", "place")


def table(top_z: float = 0.0) -> SceneNode:
    """Return the place every tabletop task happens on: 1.2 x 1.6 m in front of the robot, top at ``top_z`` m."""
    return known_place("place", "table", (0.5, 0.0, top_z - 0.02), (1.2, 1.6, 0.04))


def known_place(layer: str, label: str, centre: Sequence[float], size: Sequence[float]) -> SceneNode:
    """Return a fixed building, room or place: an upright box of ``size`` m around ``centre`` m in base_link."""
    return SceneNode(
        id="",
        layer=layer,
        label=label,
        pose=Pose(np.array(centre, np.float64), np.array([1.0, 0.0, 0.0, 0.0])),
        position_covariance=np.zeros((3, 3)),
        size=np.array(size, np.float64),
        color=np.full(3, 0.5),
        embedding=np.zeros(EMBEDDING_DIM, np.float32),
        belief=1.0,
        state="visible",
        first_seen_ns=0,
        last_seen_ns=0,
        observations=0,
    )


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
