"""How the frames of two robots lie to each other, and which of their objects are one.

The frames differ by an unknown turn about the vertical and a shift. Objects that both know are the landmarks: pairs
that look alike vote by RANSAC (Fischler and Bolles, 1981), the least-squares transform of the inliers follows in closed
form (Umeyama, 1991, in the plane).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree

from engram.core.errors import InvalidInputError
from engram.core.types import SceneNode
from engram.memory.graph.association import AppearanceFeatures, AssociationConfig, resembling
from engram.memory.graph.conflicts import Conflict
from engram.memory.storage.se2 import PlaneTransform, fit


@dataclass(frozen=True)
class FleetConfig:
    """Settings of the alignment of two memories."""

    inlier_m: float = 0.20
    """A landmark this far from its counterpart after the transform still supports it."""
    same_m: float = 0.15
    """Two objects that look alike are one when they are this near."""
    landmarks_min: int = 3
    """Fewer supporting landmarks than this are chance."""
    guess_m: float = 2.0
    """How far a given first guess may be off at a landmark."""
    draws: int = 500
    """Pairs of landmarks that are tried."""


def align(
    ours: Sequence[SceneNode], theirs: Sequence[SceneNode], guess: PlaneTransform | None, config: FleetConfig
) -> PlaneTransform:
    """Return the transform that most landmarks support.

    Raises:
        InvalidInputError: too few objects look alike in both, and there is no guess to fall back on.
    """
    pairs = alike_pairs(ours, theirs)
    a = np.array([n.pose.position for n in ours]).reshape(-1, 3)
    b = np.array([n.pose.position for n in theirs]).reshape(-1, 3)
    if guess is not None and len(pairs):
        apart = np.linalg.norm(a[pairs[:, 0]] - guess.apply(b[pairs[:, 1]]), axis=1)
        pairs = pairs[apart <= config.guess_m]
    best = np.zeros(0, np.int64)
    draw = np.random.default_rng(0)
    for _ in range(config.draws if len(pairs) >= 2 else 0):
        i, j = pairs[draw.choice(len(pairs), 2, replace=False)]
        if i[0] == j[0] or i[1] == j[1]:
            continue
        inliers = _support(fit(a[[i[0], j[0]]], b[[i[1], j[1]]]), a, b, pairs, config)
        if len(inliers) > len(best):
            best = inliers
    if len(best) < config.landmarks_min:
        if guess is None:
            raise InvalidInputError(
                f"{len(best)} objects agree on where the other memory lies, expected {config.landmarks_min} or more; "
                "give a transform"
            )
        return guess
    fitted = fit(a[pairs[best, 0]], b[pairs[best, 1]])
    apart = np.linalg.norm(a[pairs[best, 0]] - fitted.apply(b[pairs[best, 1]]), axis=1)
    return replace(fitted, inliers=len(best), spread_m=float(np.sqrt((apart**2).mean())))


def identities(
    ours: Sequence[SceneNode], theirs: Sequence[SceneNode], config: FleetConfig
) -> tuple[tuple[tuple[str, str], ...], tuple[Conflict, ...]]:
    """Return which nodes are one, and where the memories contradict each other."""
    if not ours or not theirs:
        return (), ()
    pairs = alike_pairs(ours, theirs)
    alike = set(map(tuple, pairs.tolist()))
    a, b = (np.array([node.pose.position for node in nodes]) for nodes in (ours, theirs))
    cost = np.full((len(ours), len(theirs)), 1e6)
    apart = np.linalg.norm(a[pairs[:, 0]] - b[pairs[:, 1]], axis=1)
    near = apart <= config.same_m
    cost[pairs[near, 0], pairs[near, 1]] = apart[near]
    rows, columns = linear_sum_assignment(cost)
    found = [(int(i), int(j)) for i, j in zip(rows, columns, strict=True) if cost[i, j] < 1e6]
    matched = tuple((ours[i].id, theirs[j].id) for i, j in found)
    left = sorted(set(range(len(theirs))) - {j for _, j in found})
    free = set(range(len(ours))) - {i for i, _ in found}
    conflicts = []
    for j in left:
        node = theirs[j]
        distance, i = cKDTree(a).query(b[j])
        if distance <= config.same_m / 3 and ours[i].label != node.label:
            words = f"{ours[i].id} is a {ours[i].label} to us, {node.id} at its place a {node.label} to them"
            conflicts.append(Conflict("named", ours[i].id, node.id, words))
        for k in sorted(k for k in free if (k, j) in alike):
            words = f"{ours[k].id} and {node.id}: one {node.label} that was moved, or two of them"
            conflicts.append(Conflict("moved", ours[k].id, node.id, words))
    return matched, tuple(conflicts)


def alike_pairs(ours: Sequence[SceneNode], theirs: Sequence[SceneNode]) -> np.ndarray:
    """Return index pairs (n, 2) of nodes that could be one object."""
    if not ours or not theirs:
        return np.empty((0, 2), np.int64)
    known, config = AppearanceFeatures.of(ours), AssociationConfig()
    found = [
        (i, j)
        for j, node in enumerate(theirs)
        for i in np.flatnonzero(resembling(AppearanceFeatures.of([node]), known, config))
    ]
    return np.array(found, np.int64).reshape(-1, 2)


def _support(
    transform: PlaneTransform, a: np.ndarray, b: np.ndarray, pairs: np.ndarray, config: FleetConfig
) -> np.ndarray:
    """Return the pairs that ``transform`` brings together, one for each object."""
    apart = np.linalg.norm(a[pairs[:, 0]] - transform.apply(b[pairs[:, 1]]), axis=1)
    near = np.flatnonzero(apart <= config.inlier_m)
    taken: tuple[set[int], set[int]] = (set(), set())
    kept = []
    for index in near[np.argsort(apart[near], kind="stable")].tolist():
        i, j = pairs[index].tolist()
        if i not in taken[0] and j not in taken[1]:
            taken[0].add(i)
            taken[1].add(j)
            kept.append(index)
    return np.array(kept, np.int64)
