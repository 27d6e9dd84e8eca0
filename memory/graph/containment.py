"""Whether a camera saw the inside of a container: the closed front of a drawer, or the air where an open drawer was,
does not count."""

from __future__ import annotations

import itertools
from collections.abc import Collection

import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.types import SceneObservation
from engram.memory.graph.coverage import Coverage
from engram.memory.graph.scene_graph import SceneGraph
from engram.memory.graph.visibility import VisibilityConfig, reach, surfaces
from engram.memory.storage.columns import LAYER_CODE, NodeColumns

_DEEP_M = 0.03
"""A place whose own half extents are all above this can have an inside: a shelf or a drawer, not the top of a table."""
_LOW = np.array([*itertools.product((-0.5, 0.0, 0.5), (-0.5, 0.0, 0.5), (-0.9,))])
_POINTS = np.vstack((np.zeros(3), list(itertools.product((-0.5, 0.5), repeat=3)), _LOW))
"""(18, 3) through which a look may pass, in half extents along the place's own axes: the middle, half-way to each
corner, and close above the bottom for a camera that looks in at a slant.

The axes are the place's own because the axis-aligned box of a rotated place also contains free space around it."""
_SIDE, _TOP = 0.75, 0.5
"""What is seen nearer to the middle than these shares of the half extents is inside: not the front, wall or lid."""
_BELOW_M = 0.02
"""Depth error at the bottom: what is seen this far below the place's box is its bottom still [m]."""


def deep(columns: NodeColumns, rows: np.ndarray) -> np.ndarray:
    """Return those of ``rows`` that are places with room for an inside."""
    is_place = columns.layer[rows] == LAYER_CODE["place"]
    return rows[is_place & (columns.size[rows] / 2 > _DEEP_M).all(axis=1)]


def seen_into(columns: NodeColumns, scene: SceneObservation, config: VisibilityConfig) -> list[str]:
    """Return the ids of the places that ``scene`` saw the inside of: the bottom, or what lies there.

    The air in the box of a drawer tells nothing, because the drawer may be shut. A place whose bottom is above the
    camera, such as a high shelf, shows none; there the air counts.
    """
    rows = deep(columns, np.sort(np.fromiter(columns.fixed, np.int64, len(columns.fixed))))
    beside = np.abs(columns.position[rows] - scene.camera_pose.position) - columns.half[rows]
    rows = rows[np.linalg.norm(np.maximum(beside, 0.0), axis=1) < 2 * reach(scene, config)[1]]
    turn = Rotation.from_quat(columns.quaternion[rows], scalar_first=True).as_matrix()
    centre, half = columns.position[rows][:, None], columns.size[rows][:, None] / 2
    points = centre + np.einsum("nij,nkj->nki", turn, _POINTS * half)  # (n, 18, 3)
    ends = surfaces(scene, points.reshape(-1, 3), config).reshape(points.shape)  # NaN, which is neither, if not seen
    eye = scene.camera_pose.position
    passed = np.linalg.norm(ends - eye, axis=2) >= np.linalg.norm(points - eye, axis=2) - config.depth_noise_m
    ends, eye = np.einsum("nji,nkj->nki", turn, ends - centre), np.einsum("nji,nkj->nki", turn, eye - centre)
    inside = (np.abs(ends[..., :2]) <= _SIDE * half[..., :2]).all(axis=2)
    inside &= (ends[..., 2] >= -half[..., 2] - _BELOW_M) & (ends[..., 2] <= _TOP * half[..., 2])
    seen = rows[(passed & (inside | (eye[..., 2] < -half[..., 2]))).any(axis=1)]
    return [columns.about(row).id for row in seen.tolist()]


def closed_in(scene: SceneGraph, rows: np.ndarray, into: Collection[str]) -> np.ndarray:
    """Tell (n,) bool which objects lie in a place, of several the smallest, that is not among those seen ``into``."""
    columns, found = scene.columns, np.zeros(len(rows), bool)
    for i, row in enumerate(rows.tolist()):
        related = scene.related(columns.about(row).id).items()
        around = deep(columns, np.array([columns.row_of[one] for one, how in related if how == "in"], np.int64))
        if len(around):
            smallest = around[np.argmin(np.prod(columns.half[around], axis=1))]
            found[i] = columns.about(int(smallest)).id not in into
    return found


def last_looks(columns: NodeColumns, coverage: Coverage, rows: np.ndarray) -> np.ndarray:
    """Return when the fixed ``rows`` (n,) were last looked at (n,) ns; -1 = never.

    Of what was once seen to be hollow, a look at its outside does not count.
    """
    centre, half = columns.position[rows], columns.half[rows]
    into = np.array([coverage.into.get(columns.about(row).id, -1) for row in rows.tolist()], np.int64)
    return np.where(into >= 0, into, coverage.last_looks(centre - half, centre + half))
