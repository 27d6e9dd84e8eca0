"""How one node changes by one detection, or by its absence."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from engram.core.types import DetectedObject, Pose, SceneNode


@dataclass(frozen=True)
class FusionConfig:
    """Noise and belief model of one object."""

    drift_m: float = 0.002
    """Standard deviation by which a resting object's place is assumed to drift between two sights."""
    moved_gate: float = 11.34
    """Squared Mahalanobis distance (chi-square, 3 dof, 99 %) above which it was moved: the old place is dropped."""
    hit_ratio: float = 8.0
    """P(detected | there) / P(detected | not there) at score 1."""
    free_ratio: float = 0.3
    """P(missed | there) / P(missed | not there) where the camera saw through its place."""
    filled_ratio: float = 0.7
    """The same where a surface lies at its place: the detector may have missed it."""
    belief_max: float = 0.99
    """Belief saturates here, so that about five clear misses are enough to give an object up."""
    memory: int = 10
    """Appearance is averaged over about this many sights."""


def born(node_id: str, seen: DetectedObject, stamp_ns: int, config: FusionConfig) -> SceneNode:
    """Return the node of an object seen for the first time; even odds before the sight."""
    return SceneNode(
        id=node_id,
        layer="object",
        label=seen.label,
        pose=seen.pose,
        position_covariance=seen.position_covariance,
        size=seen.size,
        color=seen.color,
        embedding=seen.embedding,
        belief=_odds(0.5, 1 + (config.hit_ratio - 1) * seen.score, config),
        state="visible",
        first_seen_ns=stamp_ns,
        last_seen_ns=stamp_ns,
        observations=1,
    )


def fuse(node: SceneNode, seen: DetectedObject, stamp_ns: int, label: str, config: FusionConfig) -> SceneNode:
    """Return ``node`` after the sight ``seen``: Kalman update of the place, running mean of the appearance."""
    position, covariance = fuse_position(
        node.pose.position, node.position_covariance, seen.pose.position, seen.position_covariance, config
    )
    weight = 1 / min(node.observations + 1, config.memory)
    embedding = (1 - weight) * node.embedding + weight * seen.embedding
    norm = math.sqrt(float(embedding @ embedding))
    return replace(
        node,
        label=label,
        pose=Pose(position, seen.pose.quaternion, node.pose.frame),
        position_covariance=covariance,
        size=(1 - weight) * node.size + weight * seen.size,
        color=(1 - weight) * node.color + weight * seen.color,
        embedding=(embedding / norm if norm > 1e-6 else seen.embedding).astype(np.float32),
        belief=_odds(node.belief, 1 + (config.hit_ratio - 1) * seen.score, config),
        state="visible",
        first_seen_ns=min(node.first_seen_ns, stamp_ns),
        last_seen_ns=max(node.last_seen_ns, stamp_ns),
        observations=node.observations + 1,
    )


def fuse_position(
    place: np.ndarray, covariance: np.ndarray, seen: np.ndarray, noise: np.ndarray, config: FusionConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Return the place (3,) m and covariance (3, 3) m^2 after a sight; a sight that cannot be noise replaces it."""
    prior = covariance + np.eye(3) * config.drift_m**2
    innovation = seen - place
    total = prior + noise
    if innovation @ np.linalg.solve(total, innovation) > config.moved_gate:
        return seen, noise
    gain = np.linalg.solve(total, prior).T  # prior @ inv(total); both are symmetric
    updated = prior - gain @ prior
    return place + gain @ innovation, (updated + updated.T) / 2


def missed(node: SceneNode, filled: bool, absent_below: float, config: FusionConfig) -> SceneNode:
    """Return ``node`` after a look at its place that did not find it."""
    belief = _odds(node.belief, config.filled_ratio if filled else config.free_ratio, config)
    return replace(node, belief=belief, state="absent" if belief < absent_below else node.state)


def _odds(belief: float, ratio: float, config: FusionConfig) -> float:
    odds = ratio * belief / max(1 - belief, 1e-9)
    return min(max(odds / (1 + odds), 1 - config.belief_max), config.belief_max)
