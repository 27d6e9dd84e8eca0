"""What a detector did not report: filled in before an observation enters the scene graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engram.core.types import POSITION_SIGMA_M, DetectedObject, SceneObservation
from engram.memory.graph.text_embedding import Embed
from engram.memory.storage.columns import NodeColumns

DEFAULT_SIZE_M = 0.05
"""Edge of the cube that stands for an object of unknown extents."""
DEFAULT_COLOR = 0.5
"""Red, green and blue of an object of unknown colour."""


def completed(scene: SceneObservation, columns: NodeColumns, embed: Embed) -> SceneObservation:
    """Return ``scene`` with every field of its objects set.

    The embedding is that of the label. Size and colour are those of the nearest known object with the same label, so
    that association does not reject a match for a value that nobody measured; of a new object they are defaults.
    """
    if all(_is_complete(seen) for seen in scene.objects):
        return scene
    return replace(scene, objects=tuple(_completed(seen, columns, embed) for seen in scene.objects))


def is_default_color(color: np.ndarray) -> bool:
    """Whether (3,) rgb is what stands for a colour that nobody measured."""
    return bool((np.abs(color - DEFAULT_COLOR) < 1e-9).all())


def _is_complete(seen: DetectedObject) -> bool:
    return not any(value is None for value in (seen.position_covariance, seen.size, seen.color, seen.embedding))


def _completed(seen: DetectedObject, columns: NodeColumns, embed: Embed) -> DetectedObject:
    if _is_complete(seen):
        return seen
    noise, row = seen.position_covariance, _nearest(seen, columns)
    size = np.full(3, DEFAULT_SIZE_M) if row is None else columns.size[row]
    color = np.full(3, DEFAULT_COLOR) if row is None else columns.color[row]
    return replace(
        seen,
        position_covariance=POSITION_SIGMA_M**2 * np.eye(3) if noise is None else noise,
        size=size if seen.size is None else seen.size,
        color=color if seen.color is None else seen.color,
        embedding=embed(seen.label) if seen.embedding is None else seen.embedding,
    )


def _nearest(seen: DetectedObject, columns: NodeColumns) -> int | None:
    """Return the row of the nearest known object that is called as ``seen`` is."""
    rows = sorted(columns.by_label.get(seen.label, ()))
    if not rows:
        return None
    away = np.linalg.norm(columns.position[rows] - seen.pose.position, axis=1)
    return rows[int(np.argmin(away))]
