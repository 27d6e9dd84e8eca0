"""How a scene node lies in the columns of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engram.core.types import EMBEDDING_DIM, Pose, SceneNode

SCHEMA = {"name": "engram.memory.graph", "version": 1}
TEXT_FIELDS = ("id", "layer", "label", "state", "frame")
COLUMNS: Mapping[str, tuple[str, int, int]] = {
    # name: (dtype, values a row, rows a chunk); a commit rewrites every chunk it touches, so chunks are small
    "number": ("f8", 23, 64),  # position 3, quaternion 4, covariance 9, size 3, color 3, belief
    "time": ("i8", 4, 64),  # first seen ns, last seen ns, observations, 1 = in use
    "embedding": ("f4", EMBEDDING_DIM, 8),
    "text": ("string", len(TEXT_FIELDS), 64),
}


def to_rows(nodes: Sequence[SceneNode]) -> dict[str, np.ndarray]:
    """Return one row a node for every column."""
    return {
        "number": np.array([_numbers(node) for node in nodes], np.float64).reshape(-1, 23),
        "time": np.array(
            [(node.first_seen_ns, node.last_seen_ns, node.observations, 1) for node in nodes], np.int64
        ).reshape(-1, 4),
        "embedding": np.array([node.embedding for node in nodes], np.float32).reshape(-1, EMBEDDING_DIM),
        "text": np.array(
            [(node.id, node.layer, node.label, node.state, node.pose.frame) for node in nodes], dtype=object
        ).reshape(-1, len(TEXT_FIELDS)),
    }


def from_row(number: np.ndarray, time: np.ndarray, embedding: np.ndarray, text: Sequence[str]) -> SceneNode:
    """Return the node of one row; the checks of SceneNode apply."""
    node_id, layer, label, state, frame = (str(value) for value in text)
    return SceneNode(
        id=node_id,
        layer=layer,
        label=label,
        pose=Pose(number[0:3], number[3:7], frame),
        position_covariance=number[7:16].reshape(3, 3),
        size=number[16:19],
        color=number[19:22],
        embedding=embedding,
        belief=float(number[22]),
        state=state,
        first_seen_ns=int(time[0]),
        last_seen_ns=int(time[1]),
        observations=int(time[2]),
    )


def _numbers(node: SceneNode) -> np.ndarray:
    parts = (node.pose.position, node.pose.quaternion, node.position_covariance.ravel(), node.size, node.color)
    return np.concatenate((*parts, (node.belief,)))
