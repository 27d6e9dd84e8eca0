"""How the frames of two robots lie to each other, and which of their objects are one.

The frames differ by an unknown turn about the vertical and a shift. Objects that both know are the landmarks: pairs
that look alike vote by RANSAC (Fischler and Bolles, 1981), the least-squares transform of the inliers follows in closed
form (Umeyama, 1991, in the plane). What agrees by chance is told from what lies alike a contrario (Moisan and Stival,
2004): by how many alignments as good are expected among unrelated things that are scattered over the same room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree
from scipy.special import rel_entr

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
    chance: float = 0.01
    """As many alignments as good as the found one may be expected of unrelated things."""
    rival: float = 0.8
    """An alignment of other pairs whose chance has so large a share of the digits of the best one's makes it
    ambiguous."""
    known_once_min: float = 0.5
    """Least share that supports the alignment of the landmarks that look like one object alone in each memory."""
    guess_m: float = 2.0
    """How far a given first guess may be off at a landmark."""
    draws: int = 500
    """Pairs of landmarks that are tried."""


@dataclass(frozen=True)
class _Alignment:
    """One way how the frames may lie to each other."""

    transform: PlaneTransform
    inliers: np.ndarray  # (k,) indices of pairs that it brings together, one for each object
    chance: float  # natural logarithm of how many as good ones are expected of unrelated things


def align(
    ours: Sequence[SceneNode], theirs: Sequence[SceneNode], guess: PlaneTransform | None, config: FleetConfig
) -> PlaneTransform:
    """Return the transform that the landmarks support best. A ``guess`` says that the memories do overlap.

    Raises:
        InvalidInputError: there is no guess, and too few landmarks agree, no more than chance brings together, or in
            two ways.
    """
    pairs = alike_pairs(ours, theirs)
    a = np.array([n.pose.position for n in ours]).reshape(-1, 3)
    b = np.array([n.pose.position for n in theirs]).reshape(-1, 3)
    if guess is not None and len(pairs):
        apart = np.linalg.norm(a[pairs[:, 0]] - guess.apply(b[pairs[:, 1]]), axis=1)
        pairs = pairs[apart <= config.guess_m]
    found = _alignments(a, b, pairs, config)
    best = min(found, key=lambda one: (one.chance, -len(one.inliers)), default=None)
    if guess is None:
        _check(best, found, pairs, config)
    if best is None or len(best.inliers) < config.landmarks_min:
        assert guess is not None
        return guess
    return best.transform


def _alignments(a: np.ndarray, b: np.ndarray, pairs: np.ndarray, config: FleetConfig) -> list[_Alignment]:
    """Return the alignments that pairs of landmarks drawn at random stand for."""
    draw, found = np.random.default_rng(0), []
    for _ in range(config.draws if len(pairs) >= 2 else 0):
        i, j = pairs[draw.choice(len(pairs), 2, replace=False)]
        if i[0] == j[0] or i[1] == j[1]:
            continue
        inliers = _support(fit(a[[i[0], j[0]]], b[[i[1], j[1]]]), a, b, pairs, config)
        if not len(inliers):
            continue
        fitted = fit(a[pairs[inliers, 0]], b[pairs[inliers, 1]])
        apart = np.linalg.norm(a[pairs[inliers, 0]] - fitted.apply(b[pairs[inliers, 1]]), axis=1)
        fitted = replace(fitted, inliers=len(inliers), spread_m=float(np.sqrt((apart**2).mean())))
        chance = _log_chance(np.sort(apart), a[pairs[:, 0], :2]) if len(inliers) >= config.landmarks_min else np.inf
        found.append(_Alignment(fitted, inliers, chance))
    return found


def _check(best: _Alignment | None, found: Sequence[_Alignment], pairs: np.ndarray, config: FleetConfig) -> None:
    """Raise InvalidInputError unless ``best`` of ``found`` says where the other memory lies."""
    most = max((len(one.inliers) for one in found), default=0)
    if best is None or most < config.landmarks_min:
        raise InvalidInputError(
            f"{most} objects agree on where the other memory lies, expected {config.landmarks_min} or more; "
            "give a transform"
        )
    once = [np.bincount(side)[side] == 1 for side in pairs.T]
    known_once = np.flatnonzero(once[0] & once[1])
    agree = len(np.intersect1d(known_once, best.inliers))
    if agree < config.known_once_min * len(known_once):
        raise InvalidInputError(
            f"the memories do not overlap: {agree} of the {len(known_once)} objects that both know once agree on where "
            f"the other memory lies, expected {config.known_once_min:.0%} or more; if they do overlap, give a transform"
        )
    if best.chance > np.log(config.chance):
        raise InvalidInputError(
            f"the memories do not overlap: {len(best.inliers)} objects agree on where the other memory lies, within "
            f"{best.transform.spread_m:.2f} m, which is no more than chance; if they do overlap, give a transform"
        )
    for other in found:
        shared = len(np.intersect1d(other.inliers, best.inliers))
        if other.chance <= config.rival * best.chance and shared < len(best.inliers) / 2:
            raise InvalidInputError(
                f"the other memory may lie in two ways: {len(best.inliers)} objects agree on one, "
                f"{len(other.inliers)} on another; give a transform"
            )


_FINEST_M = 0.005
"""Nearer than this landmarks agree no better."""


def _log_chance(apart: np.ndarray, places: np.ndarray) -> float:
    """Return the natural logarithm of how many alignments as good are expected of unrelated things.

    ``apart`` (k,) m: distances of its inliers, ascending. ``places`` (m, 2) m: of our landmark in each pair that looks
    alike. Two pairs make an alignment: they are equally far apart in both memories. Each other pair agrees within a
    radius as often as a place anywhere among ``places`` lies within it. Of the radii the most telling one counts.
    """
    centred = places - places.mean(axis=0)
    extent = np.ptp(centred @ np.linalg.svd(centred, full_matrices=False)[2].T, axis=0)
    others, agree = max(1, len(places) - 2), np.arange(1, len(apart) - 1)
    radius = np.maximum(apart[2:], _FINEST_M)
    hit = np.minimum(2 * radius[:, None] / np.maximum(extent, 1e-9), 1.0).prod(axis=1)
    equal = np.minimum(4 * radius / max(extent.max(), 1e-9), 1.0)
    share = np.maximum(agree / others, hit)
    more = -others * (rel_entr(share, hit) + rel_entr(1 - share, 1 - hit))  # Chernoff's bound of the binomial tail
    return float((np.log(len(places) * (len(places) - 1) / 2) + np.log(equal) + more).min())


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
