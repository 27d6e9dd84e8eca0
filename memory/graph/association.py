"""Data association: gated assignment of detections to known objects by position and appearance; the rest is new."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.transform import Rotation

from engram.core.types import EMBEDDING_DIM, DetectedObject, SceneNode
from engram.memory.storage.columns import NodeColumns

_FAR = 1e6
_SHADOW = 2.5
"""How much darker a surface looks in a shadow, at most."""


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
    other_color_gate: float = 0.2
    """The same where the node never had the detection's label: then all else must be similar."""
    other_size_gate: float = 2.0
    """Largest ratio of the diagonals where the labels differ."""
    moved_color_gate: float = 0.25
    """Colour gate for an object found elsewhere, where its position is no evidence."""
    absent_cost: float = 1.0
    """Extra cost of a match with an absent object, in units of the gates: present objects are matched first."""


@dataclass(frozen=True)
class AppearanceFeatures:
    """Positions and appearance of n objects, as arrays."""

    labels: Sequence[str]
    called: Sequence[Collection[str]]  # every label that each was ever given
    position: np.ndarray  # (n, 3) m
    quaternion: np.ndarray  # (n, 4) wxyz
    covariance: np.ndarray  # (n, 3, 3) m^2
    size: np.ndarray  # (n, 3) m
    color: np.ndarray  # (n, 3) rgb, 0..1
    embedding: np.ndarray  # (n, 384) float32

    @classmethod
    def of(cls, seen: Sequence[DetectedObject] | Sequence[SceneNode]) -> AppearanceFeatures:
        """Return the features of detections or nodes."""
        return cls(
            [one.label for one in seen],
            [(one.label,) for one in seen],
            np.array([one.pose.position for one in seen]).reshape(-1, 3),
            np.array([one.pose.quaternion for one in seen]).reshape(-1, 4),
            np.array([one.position_covariance for one in seen]).reshape(-1, 3, 3),
            np.array([one.size for one in seen]).reshape(-1, 3),
            np.array([one.color for one in seen]).reshape(-1, 3),
            np.array([one.embedding for one in seen], np.float32).reshape(-1, EMBEDDING_DIM),
        )

    @classmethod
    def rows(cls, columns: NodeColumns, rows: np.ndarray) -> AppearanceFeatures:
        """Return the features of known nodes."""
        texts = [columns.about(int(row)) for row in rows]
        return cls(
            [text.label for text in texts],
            [text.votes or (text.label,) for text in texts],
            columns.position[rows],
            columns.quaternion[rows],
            columns.covariance[rows],
            columns.size[rows],
            columns.color[rows],
            columns.embedding[rows],
        )

    @cached_property
    def diagonal(self) -> np.ndarray:
        """Lengths (n,) m of the boxes' diagonals."""
        return np.linalg.norm(self.size, axis=1)


@dataclass(frozen=True)
class Assignment:
    """Pairs (node index, detection index) and the detections that are new."""

    known: tuple[tuple[int, int], ...]
    new: tuple[int, ...]


def assign(
    known: AppearanceFeatures,
    seen: AppearanceFeatures,
    config: AssociationConfig | None = None,
    absent: np.ndarray | None = None,
) -> Assignment:
    """Match ``seen`` with ``known`` by position and appearance; ``absent`` (n,) bool: known to be gone.

    The rest is new, except a second detection of a matched object (a detector that split it), which is dropped. What
    has another name is a thing of its own on or beside the matched one, unless it is of about its size and in its
    place. Whether a new object is a known one that moved is decided later: a single detection's label may be wrong.
    """
    config = config or AssociationConfig()
    if not len(known.labels) or not len(seen.labels):
        return Assignment((), tuple(range(len(seen.labels))))
    absent = np.zeros(len(known.labels), bool) if absent is None else absent
    looks, alike, known_as = _unlike(known, seen, absent, config)
    place = _place_distance(known, seen, known_as, config)
    cost = place / config.place_gate + looks + config.absent_cost * absent[:, None]
    pairs = _solve(np.where((place <= config.place_gate) & alike, cost, _FAR))
    left = np.ones(len(seen.labels), bool)
    left[[j for _, j in pairs]] = False
    new = tuple(int(j) for j in np.flatnonzero(left) if not _duplicate(int(j), known, seen, pairs, config))
    return Assignment(pairs, new)


def resembling(one: AppearanceFeatures, others: AppearanceFeatures, config: AssociationConfig) -> np.ndarray:
    """Tell (n,) bool which of ``others`` could be the single object ``one``: same label, alike in all looks."""
    diagonal, theirs = np.maximum(one.diagonal, 1e-4), np.maximum(others.diagonal, 1e-4)
    return (
        np.array([label == one.labels[0] for label in others.labels], bool)
        & (np.linalg.norm(others.color - one.color, axis=1) <= config.moved_color_gate)
        & (others.embedding @ one.embedding[0] >= config.cosine_gate)
        & (np.maximum(diagonal, theirs) <= config.size_gate * np.minimum(diagonal, theirs))
    )


def _unlike(
    known: AppearanceFeatures, seen: AppearanceFeatures, absent: np.ndarray, config: AssociationConfig
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how unlike (n, m) each pair looks, 0 = alike, which pairs pass the gates, and which share a name.

    An absent object is only matched with a detection of a label that it had.
    """
    cosine = known.embedding @ seen.embedding.T
    colors = known.color[:, None] - seen.color[None]
    color = np.sqrt(np.einsum("nmi,nmi->nm", colors, colors))
    ours, theirs = np.maximum(known.diagonal, 1e-4), np.maximum(seen.diagonal, 1e-4)
    size = np.abs(np.log(ours)[:, None] - np.log(theirs)[None])
    limit = np.log(config.size_gate)
    known_as = np.array([[label in called for label in seen.labels] for called in known.called])
    color = np.where(known_as, np.minimum(color, _shaded_distance(known.color, seen.color)), color)
    alike = (cosine >= config.cosine_gate) & (color <= config.color_gate) & (size <= limit)
    same_look = (color <= config.other_color_gate) & (size <= np.log(config.other_size_gate))
    alike &= known_as | (~absent[:, None] & same_look)
    return (1 - cosine) + color / config.color_gate + 0.5 * size / limit, alike, known_as


def _shaded_distance(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Return the rgb distance (n, m) after the darker colour of each pair (n, 3), (m, 3) is brightened to the other.

    A shadow changes the brightness of a surface and not its hue; it takes at most a factor of ``_SHADOW``.
    """
    bright, other = np.maximum(ours.max(axis=1), 1e-3)[:, None], np.maximum(theirs.max(axis=1), 1e-3)[None]
    ours_up = np.clip(other / bright, 1.0, _SHADOW)[..., None]
    theirs_up = np.clip(bright / other, 1.0, _SHADOW)[..., None]
    return np.linalg.norm(ours[:, None] * ours_up - theirs[None] * theirs_up, axis=2)


_FLAT = 1e-24
"""A covariance whose determinant is not larger is none that could be solved for [m^6]: 0.1 mm in each direction."""


def _place_distance(
    known: AppearanceFeatures, seen: AppearanceFeatures, known_as: np.ndarray, config: AssociationConfig
) -> np.ndarray:
    """Return the squared Mahalanobis distance (n, m): an object of the same name may have moved, another may not.

    Pairs that are surely outside the gate get infinity: the 3x3 systems of the few others are solved.
    """
    offset = known.position[:, None] - seen.position[None]
    squared = np.einsum("nmi,nmi->nm", offset, offset)
    # the trace bounds the largest variance, so nothing within the gate is lost here
    widest = np.trace(known.covariance, axis1=1, axis2=2)[:, None] + np.trace(seen.covariance, axis1=1, axis2=2)[None]
    i, j = np.nonzero(squared <= config.place_gate * (widest + 3 * config.motion_m**2))
    motion = np.where(known_as[i, j], config.motion_m**2, 0.0)[:, None, None] * np.eye(3)
    near = offset[i, j][..., None]
    place = np.full(squared.shape, np.inf)
    total = known.covariance[i] + seen.covariance[j] + motion
    total[np.linalg.det(total) <= _FLAT] += 1e-8 * np.eye(3)  # such as a detector's that knows of planes alone
    place[i, j] = (np.swapaxes(near, 1, 2) @ np.linalg.solve(total, near))[:, 0, 0]
    return place


def _solve(cost: np.ndarray) -> tuple[tuple[int, int], ...]:
    """Return the cheapest assignment; only the rows and columns that have a possible pair are solved."""
    possible = cost < _FAR
    rows, columns = np.flatnonzero(possible.any(axis=1)), np.flatnonzero(possible.any(axis=0))
    some = cost[np.ix_(rows, columns)]
    pairs = zip(*linear_sum_assignment(some), strict=True)
    return tuple((int(rows[i]), int(columns[j])) for i, j in pairs if some[i, j] < _FAR)


def _duplicate(
    one: int,
    known: AppearanceFeatures,
    seen: AppearanceFeatures,
    pairs: Sequence[tuple[int, int]],
    config: AssociationConfig,
) -> bool:
    """Whether detection ``one`` is one more of an object that is matched already: near its middle, and of its colour.

    Its name is one that the object had. Under another name, it has about the object's size, and the middle of one lies
    in the box of the other.
    """
    if not pairs:
        return False
    i, j = np.array(pairs).T
    reach = np.maximum(known.diagonal[i], seen.diagonal[j]) / 2
    apart = np.linalg.norm(seen.position[j] - seen.position[one], axis=1)
    color = np.linalg.norm(seen.color[j] - seen.color[one], axis=1)
    near = (apart < 0.7 * reach) & (color < config.moved_color_gate)
    i, j, label = i[near], j[near], seen.labels[one]
    if not near.any():
        return False
    named = np.array([label in known.called[a] or label == seen.labels[b] for a, b in zip(i, j, strict=True)], bool)
    ratio = np.maximum(known.diagonal[i], 1e-4) / max(seen.diagonal[one], 1e-4)
    alike = np.maximum(ratio, 1 / ratio) <= config.other_size_gate
    place = seen.position[[one]]
    inside = _in_box(place, known, i) | _in_box(place, seen, j) | _in_box(known.position[i], seen, np.full(len(i), one))
    return bool((named | (alike & inside)).any())


def _in_box(points: np.ndarray, boxes: AppearanceFeatures, these: np.ndarray) -> np.ndarray:
    """Tell (n,) bool which of ``points`` (n, 3) m, or whether the only one, lies in the box of ``these`` (n,)."""
    turned = Rotation.from_quat(boxes.quaternion[these].reshape(-1, 4), scalar_first=True)
    offset = turned.apply(points - boxes.position[these], inverse=True)
    return (np.abs(offset) <= boxes.size[these] / 2).all(axis=1)
