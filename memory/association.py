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
    looks, alike = _looks(nodes, seen, config)
    place = _place_distance(nodes, seen, config.motion_m)
    near = place <= config.place_gate
    stayed = _solve(np.where(near & alike, place / config.place_gate + looks, _FAR))
    node_left = np.ones(len(nodes), bool)
    seen_left = np.ones(len(seen), bool)
    _take(stayed, node_left, seen_left)

    same = alike & (looks_color(nodes, seen) <= config.moved_color_gate)
    same &= np.array([[node.label == one.label for one in seen] for node in nodes])
    same &= (vacated & node_left)[:, None] & seen_left[None, :]
    moved = _solve(np.where(same, np.sqrt(place) / 1e3 + looks, _FAR))
    _take(moved, node_left, seen_left)
    new = tuple(int(j) for j in np.flatnonzero(seen_left) if not _duplicate(seen[j], nodes, stayed, seen, config))
    return Assignment(stayed, moved, new)


def looks_color(nodes: Sequence[SceneNode], seen: Sequence[DetectedObject]) -> np.ndarray:
    """Return the rgb distance (n, m) of every node to every detection."""
    ours, theirs = np.array([n.color for n in nodes]), np.array([s.color for s in seen])
    return np.linalg.norm(ours[:, None] - theirs[None], axis=2)


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
) -> tuple[np.ndarray, np.ndarray]:
    """Return how unlike (n, m) each pair looks, 0 = alike, and which pairs pass the gates."""
    cosine = np.array([n.embedding for n in nodes]) @ np.array([s.embedding for s in seen]).T
    color = looks_color(nodes, seen)
    ours = np.linalg.norm([n.size for n in nodes], axis=1)
    theirs = np.linalg.norm([s.size for s in seen], axis=1)
    size = np.abs(np.log(np.maximum(ours, 1e-4))[:, None] - np.log(np.maximum(theirs, 1e-4))[None])
    limit = np.log(config.size_gate)
    alike = (cosine >= config.cosine_gate) & (color <= config.color_gate) & (size <= limit)
    return (1 - cosine) + color / config.color_gate + 0.5 * size / limit, alike


def _place_distance(nodes: Sequence[SceneNode], seen: Sequence[DetectedObject], motion_m: float) -> np.ndarray:
    """Return the squared Mahalanobis distance (n, m), an object being free to move by ``motion_m``."""
    ours, theirs = np.array([n.pose.position for n in nodes]), np.array([s.pose.position for s in seen])
    spread = np.array([n.position_covariance for n in nodes])[:, None]
    spread = spread + np.array([s.position_covariance for s in seen])[None] + np.eye(3) * motion_m**2
    apart = (ours[:, None] - theirs[None])[..., None]  # (n, m, 3, 1)
    return (np.swapaxes(apart, 2, 3) @ np.linalg.solve(spread, apart))[..., 0, 0]


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
