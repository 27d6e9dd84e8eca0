"""Which detection is which known object: gated assignment, then moved, then new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from engram.core.types import DetectedObject, SceneNode

_FAR = 1e6


@dataclass(frozen=True)
class AssociationConfig:
    """Gates: a pair outside any of them is never matched."""

    place_gate: float = 16.27
    """Squared Mahalanobis distance (chi-square, 3 dof, 99.9 %)."""
    motion_m: float = 0.03
    """Standard deviation of an object's motion between two frames (a carried object, 0.5 m/s)."""
    cosine_gate: float = 0.3
    """Least cosine of the embeddings."""
    color_gate: float = 0.45
    """Largest rgb distance, of 0..1 values."""
    size_gate: float = 3.0
    """Largest ratio of the diagonals; partly hidden objects look smaller."""
    moved_color_gate: float = 0.25
    """Colour gate for an object found elsewhere: its place does not vouch for it."""


@dataclass(frozen=True)
class Assignment:
    """Pairs (node index, detection index) and the detections that are new."""

    stayed: tuple[tuple[int, int], ...]
    moved: tuple[tuple[int, int], ...]
    new: tuple[int, ...]


def assign(
    nodes: Sequence[SceneNode],
    seen: Sequence[DetectedObject],
    vacated: np.ndarray,
    config: AssociationConfig | None = None,
) -> Assignment:
    """Match ``seen`` with ``nodes``; ``vacated`` (n,) bool: the node's place was seen empty, it may be elsewhere.

    First by place and looks together; what is left may be a vacated node of the same label and colour; the rest
    is new, except a second sight of an object that is already matched (a detector that split it), which is dropped.
    """
    config = config or AssociationConfig()
    if not nodes or not seen:
        return Assignment((), (), tuple(range(len(seen))))
    looks, alike, color = _looks(nodes, seen, config)
    apart, place = _place_distance(nodes, seen, config)
    near = place <= config.place_gate
    stayed = _solve(np.where(near & alike, place / config.place_gate + looks, _FAR))
    node_left = np.ones(len(nodes), bool)
    seen_left = np.ones(len(seen), bool)
    _take(stayed, node_left, seen_left)

    moved: tuple[tuple[int, int], ...] = ()
    free = np.flatnonzero(vacated & node_left)
    if len(free) and seen_left.any():
        same = np.array([[nodes[i].label == one.label for one in seen] for i in free]) & seen_left
        same &= alike[free] & (color[free] <= config.moved_color_gate)
        pairs = _solve(np.where(same, apart[free] + looks[free], _FAR))
        moved = tuple((int(free[i]), j) for i, j in pairs)
        _take(moved, node_left, seen_left)
    new = tuple(int(j) for j in np.flatnonzero(seen_left) if not _duplicate(seen[j], nodes, stayed, seen, config))
    return Assignment(stayed, moved, new)


def resembles(first: SceneNode, second: SceneNode, config: AssociationConfig) -> bool:
    """Tell whether two nodes could be one object: same label, alike in colour, size and embedding."""
    diagonals = np.linalg.norm(first.size), np.linalg.norm(second.size)
    return (
        first.label == second.label
        and float(np.linalg.norm(first.color - second.color)) <= config.moved_color_gate
        and float(first.embedding @ second.embedding) >= config.cosine_gate
        and max(diagonals) <= config.size_gate * min(diagonals)
    )


def _looks(
    nodes: Sequence[SceneNode], seen: Sequence[DetectedObject], config: AssociationConfig
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how unlike (n, m) each pair looks, 0 = alike, which pairs pass the gates, and the rgb distances."""
    cosine = np.array([n.embedding for n in nodes]) @ np.array([s.embedding for s in seen]).T
    colors = np.array([n.color for n in nodes])[:, None] - np.array([s.color for s in seen])[None]
    color = np.sqrt(np.einsum("nmi,nmi->nm", colors, colors))
    ours = np.linalg.norm(np.array([n.size for n in nodes]), axis=1)
    theirs = np.linalg.norm(np.array([s.size for s in seen]), axis=1)
    size = np.abs(np.log(np.maximum(ours, 1e-4))[:, None] - np.log(np.maximum(theirs, 1e-4))[None])
    limit = np.log(config.size_gate)
    alike = (cosine >= config.cosine_gate) & (color <= config.color_gate) & (size <= limit)
    return (1 - cosine) + color / config.color_gate + 0.5 * size / limit, alike, color


def _place_distance(
    nodes: Sequence[SceneNode], seen: Sequence[DetectedObject], config: AssociationConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distance (n, m) m and the squared Mahalanobis distance, an object being free to move.

    Pairs that are surely outside the gate get infinity: the 3x3 systems of the few others are solved.
    """
    offset = np.array([n.pose.position for n in nodes])[:, None] - np.array([s.pose.position for s in seen])[None]
    squared = np.einsum("nmi,nmi->nm", offset, offset)
    ours = np.array([n.position_covariance for n in nodes])
    theirs = np.array([s.position_covariance for s in seen]) + np.eye(3) * config.motion_m**2
    # the trace bounds the largest variance, so nothing within the gate is lost here
    widest = np.trace(ours, axis1=1, axis2=2)[:, None] + np.trace(theirs, axis1=1, axis2=2)[None]
    i, j = np.nonzero(squared <= config.place_gate * widest)
    near = offset[i, j][..., None]
    place = np.full(squared.shape, np.inf)
    place[i, j] = (np.swapaxes(near, 1, 2) @ np.linalg.solve(ours[i] + theirs[j], near))[:, 0, 0]
    return np.sqrt(squared), place


def _solve(cost: np.ndarray) -> tuple[tuple[int, int], ...]:
    rows, columns = linear_sum_assignment(cost)
    return tuple((int(i), int(j)) for i, j in zip(rows, columns, strict=True) if cost[i, j] < _FAR)


def _take(pairs: Sequence[tuple[int, int]], node_left: np.ndarray, seen_left: np.ndarray) -> None:
    for i, j in pairs:
        node_left[i] = seen_left[j] = False


def _duplicate(
    one: DetectedObject,
    nodes: Sequence[SceneNode],
    stayed: Sequence[tuple[int, int]],
    seen: Sequence[DetectedObject],
    config: AssociationConfig,
) -> bool:
    """Whether ``one`` lies inside an object that this frame already explains, with its colour."""
    for i, j in stayed:
        reach = max(float(np.linalg.norm(nodes[i].size)), float(np.linalg.norm(seen[j].size))) / 2
        apart = float(np.linalg.norm(one.pose.position - seen[j].pose.position))
        if apart < 0.7 * reach and float(np.linalg.norm(one.color - seen[j].color)) < config.moved_color_gate:
            return True
    return False
