"""Whether a camera saw the inside of a container: seeing the closed front of a drawer does not count."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.types import SceneObservation
from engram.memory.graph.coverage import Coverage
from engram.memory.graph.visibility import FILLED, FREE, VisibilityConfig, look, reach
from engram.memory.storage.columns import LAYER_CODE, NodeColumns

_DEEP_M = 0.03
"""A place whose own half extents are all above this can have an inside: a shelf or a drawer, not the top of a table."""
_POINTS = 0.5 * np.array([(0, 0, 0), *itertools.product((-1, 1), repeat=3)])
"""(9, 3) where a look counts, in half extents along the place's own axes: the middle, and half-way to each corner.

The axes are the place's own because the axis-aligned box of a rotated place also contains free space around it."""


def deep(columns: NodeColumns, rows: np.ndarray) -> np.ndarray:
    """Return those of ``rows`` that are places with room for an inside."""
    is_place = columns.layer[rows] == LAYER_CODE["place"]
    return rows[is_place & (columns.size[rows] / 2 > _DEEP_M).all(axis=1)]


def seen_into(columns: NodeColumns, scene: SceneObservation, config: VisibilityConfig) -> list[str]:
    """Return the ids of the places that ``scene`` saw the inside of."""
    rows = deep(columns, np.sort(np.fromiter(columns.fixed, np.int64, len(columns.fixed))))
    beside = np.abs(columns.position[rows] - scene.camera_pose.position) - columns.half[rows]
    rows = rows[np.linalg.norm(np.maximum(beside, 0.0), axis=1) < 2 * reach(scene, config)[1]]
    turn = Rotation.from_quat(columns.quaternion[rows], scalar_first=True).as_matrix()
    inside = np.einsum("nij,nkj->nki", turn, _POINTS * columns.size[rows][:, None] / 2)
    points = columns.position[rows][:, None] + inside  # (n, 9, 3)
    verdict = look(scene, points.reshape(-1, 3), np.zeros((9 * len(rows), 3)), config).reshape(-1, 9)
    seen = rows[((verdict == FREE) | (verdict == FILLED)).any(axis=1)]
    return [columns.about(row).id for row in seen.tolist()]


def last_looks(columns: NodeColumns, coverage: Coverage, rows: np.ndarray) -> np.ndarray:
    """Return when the fixed ``rows`` (n,) were last looked at (n,) ns; -1 = never.

    Of what was once seen to be hollow, a look at its outside does not count.
    """
    centre, half = columns.position[rows], columns.half[rows]
    into = np.array([coverage.into.get(columns.about(row).id, -1) for row in rows.tolist()], np.int64)
    return np.where(into >= 0, into, coverage.last_looks(centre - half, centre + half))
