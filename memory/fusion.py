"""How one node changes by one detection, or by its absence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from engram.core.types import DetectedObject, Pose, SceneNode


@dataclass(frozen=True)
class FusionConfig:
    """Noise and belief model of one object."""

    drift_m: float = 0.0005
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


def fuse(
    nodes: Sequence[SceneNode],
    seen: Sequence[DetectedObject],
    labels: Sequence[str],
    stamp_ns: int,
    config: FusionConfig,
) -> list[SceneNode]:
    """Return each of ``nodes`` after its sight: Kalman update of the place, running mean of the appearance."""
    if not nodes:
        return []
    places, covariances = fuse_positions(
        np.array([node.pose.position for node in nodes]),
        np.array([node.position_covariance for node in nodes]),
        np.array([one.pose.position for one in seen]),
        np.array([one.position_covariance for one in seen]),
        config,
    )
    weight = 1 / np.minimum([node.observations + 1 for node in nodes], config.memory)[:, None]
    sizes = _mean([node.size for node in nodes], [one.size for one in seen], weight)
    colors = _mean([node.color for node in nodes], [one.color for one in seen], weight)
    embeddings = _mean([node.embedding for node in nodes], [one.embedding for one in seen], weight)
    norms = np.sqrt(np.einsum("ni,ni->n", embeddings, embeddings))
    embeddings = (embeddings / np.maximum(norms, 1e-6)[:, None]).astype(np.float32)
    for array in (places, covariances, sizes, colors, embeddings):
        array.flags.writeable = False  # rows need no copy on their way into a node
    return [
        replace(
            node,
            label=labels[i],
            pose=Pose(places[i], seen[i].pose.quaternion, node.pose.frame),
            position_covariance=covariances[i],
            size=sizes[i],
            color=colors[i],
            embedding=embeddings[i],
            belief=_odds(node.belief, 1 + (config.hit_ratio - 1) * seen[i].score, config),
            state="visible",
            first_seen_ns=min(node.first_seen_ns, stamp_ns),
            last_seen_ns=max(node.last_seen_ns, stamp_ns),
            observations=node.observations + 1,
        )
        for i, node in enumerate(nodes)
    ]


def fuse_positions(
    places: np.ndarray, covariances: np.ndarray, seen: np.ndarray, noise: np.ndarray, config: FusionConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Return places (n, 3) m and covariances (n, 3, 3) m^2 after one sight each.

    Kalman update; a sight that cannot be noise (``moved_gate``) replaces what was known.
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


def _mean(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray], weight: np.ndarray) -> np.ndarray:
    return (1 - weight) * np.array(ours) + weight * np.array(theirs)


def missed(node: SceneNode, filled: bool, absent_below: float, config: FusionConfig) -> SceneNode:
    """Return ``node`` after a look at its place that did not find it."""
    belief = _odds(node.belief, config.filled_ratio if filled else config.free_ratio, config)
    return replace(node, belief=belief, state="absent" if belief < absent_below else node.state)


def _odds(belief: float, ratio: float, config: FusionConfig) -> float:
    odds = ratio * belief / max(1 - belief, 1e-9)
    return min(max(odds / (1 + odds), 1 - config.belief_max), config.belief_max)
