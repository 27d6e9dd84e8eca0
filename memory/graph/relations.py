"""on, in, near from the boxes of the nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from engram.core.types import SceneNode
from engram.memory.graph.scene_graph import EdgeKey
from engram.memory.storage.columns import LARGE_M, half_extents


@dataclass(frozen=True)
class RelationConfig:
    """Tolerances of the relations."""

    contact_m: float = 0.015
    """Vertical gap between a bottom and a top that still counts as ``on``."""
    near_m: float = 0.10
    """Free distance between two boxes that counts as ``near``."""
    resting_m: float = 0.004
    """A box that changed less than this keeps its relations."""


@dataclass(frozen=True)
class Boxes:
    """Axis-aligned boxes of n nodes in base_link."""

    ids: Sequence[str]
    layers: Sequence[str]
    centre: np.ndarray  # (n, 3) m
    half: np.ndarray  # (n, 3) m, half extents


def boxes(nodes: Sequence[SceneNode]) -> Boxes:
    """Return the boxes of ``nodes``."""
    half = half_extents(np.array([n.pose.quaternion for n in nodes]), np.array([n.size for n in nodes]))
    return Boxes([n.id for n in nodes], [n.layer for n in nodes], np.array([n.pose.position for n in nodes]), half)


def relations(
    among: Boxes, config: RelationConfig | None = None, touched: Collection[str] | None = None
) -> list[EdgeKey]:
    """Return the (source, target, relation) that hold among boxes, one relation a pair.

    ``in`` wins over ``on`` and ``on`` over ``near``; ``near`` is symmetric and stored once, smaller id first, and
    only between nodes of one layer (everything on a table is near it). With ``touched``, only the relations of
    those nodes.
    """
    config = config or RelationConfig()
    ids, layers, centre, half = among.ids, among.layers, among.centre, among.half
    if len(ids) < 2:
        return []
    first, second = _candidates(centre, half, config.near_m)
    if touched is not None:
        mask = np.array([node_id in touched for node_id in ids])
        kept = mask[first] | mask[second]
        first, second = first[kept], second[kept]
    found: list[EdgeKey] = []
    related = np.zeros(len(first), bool)
    for inner, outer in ((first, second), (second, first)):
        inside = _inside(centre, half, inner, outer) & ~related
        found += [(ids[i], ids[j], "in") for i, j in zip(inner[inside], outer[inside], strict=True)]
        related |= inside
    for upper, lower in ((first, second), (second, first)):
        rests = _on(centre, half, upper, lower, config.contact_m) & ~related
        found += [(ids[i], ids[j], "on") for i, j in zip(upper[rests], lower[rests], strict=True)]
        related |= rests
    gap = np.maximum(np.abs(centre[first] - centre[second]) - half[first] - half[second], 0.0)
    close = (np.linalg.norm(gap, axis=1) <= config.near_m) & ~related
    for i, j in zip(first[close], second[close], strict=True):
        if layers[i] == layers[j] == "object":
            source, target = sorted((ids[i], ids[j]))
            found.append((source, target, "near"))
    return found


def _candidates(centre: np.ndarray, half: np.ndarray, near_m: float) -> tuple[np.ndarray, np.ndarray]:
    """Return index pairs that may be related: neighbours by KD-tree, each large box with what is smaller around it."""
    radius = np.linalg.norm(half, axis=1)
    large = radius > LARGE_M  # a table in the tree's radius would pair everything with everything
    small = np.flatnonzero(~large)
    pairs = [np.empty((0, 2), np.int64)]
    if len(small) > 1:
        reach = near_m + 2 * float(radius[small].max())
        pairs.append(small[cKDTree(centre[small]).query_pairs(reach, output_type="ndarray")])
    wide = np.flatnonzero(large)
    if len(wide):
        around = cKDTree(centre).query_ball_point(centre[wide], 2 * radius[wide] + near_m)
        for i, found in zip(wide.tolist(), around, strict=True):
            others = np.array(found, np.int64)
            others = others[(radius[others] < radius[i]) | ((radius[others] == radius[i]) & (others > i))]
            pairs.append(np.column_stack((np.full(len(others), i), others)))
    both = np.concatenate(pairs)
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    return both[:, 0], both[:, 1]


def _inside(centre: np.ndarray, half: np.ndarray, inner: np.ndarray, outer: np.ndarray) -> np.ndarray:
    """The centre of ``inner`` lies in ``outer``, which is wider in x and y."""
    within = (np.abs(centre[inner] - centre[outer]) < half[outer]).all(axis=1)
    return within & (half[inner, :2] < half[outer, :2]).all(axis=1)


def _on(centre: np.ndarray, half: np.ndarray, upper: np.ndarray, lower: np.ndarray, contact: float) -> np.ndarray:
    """The bottom of ``upper`` touches the top of ``lower``, which carries its centre."""
    gap = (centre[upper, 2] - half[upper, 2]) - (centre[lower, 2] + half[lower, 2])
    carried = (np.abs(centre[upper, :2] - centre[lower, :2]) < half[lower, :2]).all(axis=1)
    return (np.abs(gap) <= contact) & carried & (centre[upper, 2] > centre[lower, 2])
