"""How one node changes by one detection, or by its absence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engram.core.types import DetectedObject, SceneNode
from engram.memory.graph.association import AppearanceFeatures
from engram.memory.storage.columns import NodeColumns

_FORGOTTEN = 0.05
"""A label with fewer votes than this is dropped."""


@dataclass(frozen=True)
class FusionConfig:
    """Noise and belief model of one object."""

    drift_m: float = 0.0005
    """Standard deviation by which a resting object's position is assumed to drift between two detections [m]."""
    moved_gate: float = 11.34
    """Squared Mahalanobis distance (chi-square, 3 dof, 99 %) above which it was moved: the old position is dropped."""
    prior: float = 0.1
    """Belief before the first detection: one detection with full score is not believed yet, a second one is."""
    hit_ratio: float = 8.0
    """P(detected | there) / P(detected | not there) at score 1."""
    free_ratio: float = 0.05
    """P(missed | there) / P(missed | not there) where the camera saw through its place: nearly settles it."""
    filled_ratio: float = 0.3
    """The same where a surface lies at its place: the detector may have missed it."""
    belief_max: float = 0.99
    """Belief saturates here, so that two clear misses are enough to make an object absent."""
    memory: int = 10
    """Appearance and label are running means over about this many detections."""
    ambiguous_belief: float = 0.5
    """Belief in an object out of view falls to this when a similar one is seen twice elsewhere: either it was carried
    there, or there are two."""


@dataclass(frozen=True)
class Detections:
    """The detections of one frame as arrays."""

    features: AppearanceFeatures
    quaternion: np.ndarray  # (m, 4) wxyz
    score: np.ndarray  # (m,) 0..1

    @classmethod
    def of(cls, seen: Sequence[DetectedObject]) -> Detections:
        """Return the arrays of detections."""
        quaternion = np.array([one.pose.quaternion for one in seen]).reshape(-1, 4)
        return cls(AppearanceFeatures.of(seen), quaternion, np.array([one.score for one in seen]))


def spawn(node_id: str, seen: DetectedObject, stamp_ns: int, config: FusionConfig, evidence: str = "") -> SceneNode:
    """Return the node of an object seen for the first time; ``seen`` is complete."""
    assert seen.position_covariance is not None and seen.size is not None
    assert seen.color is not None and seen.embedding is not None
    return SceneNode(
        id=node_id,
        layer="object",
        label=seen.label,
        pose=seen.pose,
        position_covariance=seen.position_covariance,
        size=seen.size,
        color=seen.color,
        embedding=seen.embedding,
        belief=float(bayes(np.array([config.prior]), hit(np.array([seen.score]), config), config)[0]),
        state="visible",
        first_seen_ns=stamp_ns,
        last_seen_ns=stamp_ns,
        observations=1,
        first_evidence=evidence,
        last_evidence=evidence,
    )


def fuse(columns: NodeColumns, rows: np.ndarray, seen: Detections, of: np.ndarray, config: FusionConfig) -> None:
    """Fuse detection ``of[i]`` into row ``rows[i]``: Kalman update of the position, running mean of the appearance.

    State, times, cameras and labels are the caller's.
    """
    features = seen.features
    columns.position[rows], columns.covariance[rows] = fuse_positions(
        columns.position[rows], columns.covariance[rows], features.position[of], features.covariance[of], config
    )
    columns.quaternion[rows] = seen.quaternion[of]
    weight = 1 / np.minimum(columns.sights[rows] + 1, config.memory)[:, None]
    columns.size[rows] = (1 - weight) * columns.size[rows] + weight * features.size[of]
    columns.color[rows] = (1 - weight) * columns.color[rows] + weight * features.color[of]
    differ = (columns.embedding[rows] != features.embedding[of]).any(axis=1)
    mixed = ((1 - weight) * columns.embedding[rows] + weight * features.embedding[of])[differ]
    norms = np.sqrt(np.einsum("ni,ni->n", mixed, mixed))
    columns.embedding[rows[differ]] = mixed / np.maximum(norms, 1e-6)[:, None]
    columns.changed_embedding.update(rows[differ].tolist())
    columns.belief[rows] = bayes(columns.belief[rows], hit(seen.score[of], config), config)


def fuse_positions(
    places: np.ndarray, covariances: np.ndarray, seen: np.ndarray, noise: np.ndarray, config: FusionConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions (n, 3) m and covariances (n, 3, 3) m^2 after one detection each.

    Kalman update; a detection outside ``moved_gate`` replaces what was known.
    """
    prior = covariances + np.eye(3) * config.drift_m**2
    innovation = (seen - places)[..., None]  # (n, 3, 1)
    total = prior + noise
    distance = (np.swapaxes(innovation, 1, 2) @ np.linalg.solve(total, innovation))[:, 0, 0]
    gain = np.swapaxes(np.linalg.solve(total, prior), 1, 2)  # prior @ inv(total); both are symmetric
    updated = prior - gain @ prior
    moved = distance > config.moved_gate
    position = np.where(moved[:, None], seen, places + (gain @ innovation)[..., 0])
    return position, np.where(moved[:, None, None], noise, (updated + np.swapaxes(updated, 1, 2)) / 2)


def vote(votes: Mapping[str, float], label: str, score: float, config: FusionConfig) -> dict[str, float]:
    """Return the sums of scores by label after one more detection; older ones decay exponentially."""
    kept = {name: value * (1 - 1 / config.memory) for name, value in votes.items()}
    kept = {name: value for name, value in kept.items() if value > _FORGOTTEN}
    kept[label] = kept.get(label, 0.0) + score
    return kept


def hit(score: np.ndarray, config: FusionConfig) -> np.ndarray:
    """Return the likelihood ratio of a detection with ``score`` 0..1: 1 at score 0, ``hit_ratio`` at score 1."""
    return config.hit_ratio**score


def bayes(belief: np.ndarray, ratio: np.ndarray | float, config: FusionConfig) -> np.ndarray:
    """Return ``belief`` after evidence with likelihood ratio ``ratio``, kept within 1 - max .. max."""
    odds = ratio * belief / np.maximum(1 - belief, 1e-9)
    return np.clip(odds / (1 + odds), 1 - config.belief_max, config.belief_max)
