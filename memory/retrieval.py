"""Text + place search over the nodes: cosine of embeddings, a KD-tree for the radius, belief as weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.spatial import cKDTree

from engram.core.contracts import MemoryAnswer, MemoryQuery
from engram.core.errors import InvalidInputError
from engram.core.types import EMBEDDING_DIM, SceneNode


class Encoder(Protocol):
    """Texts -> unit vectors."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return one embedding (n, 384) float32 of unit length for each text."""


@dataclass(frozen=True)
class RetrievalConfig:
    """How the parts of a score weigh."""

    half_distance_m: float = 1.0
    """A node this far from the asked place scores half."""


def text_embedder(encoder: Encoder | None) -> Callable[[str], np.ndarray]:
    """Return a text -> (384,) function; without ``encoder`` the default MiniLM loads at the first call."""

    def embed(text: str) -> np.ndarray:
        nonlocal encoder
        if encoder is None:
            from engram.perception.embedding import default_text_encoder  # loads torch: only when asked in words

            encoder = default_text_encoder()
        vector = np.asarray(encoder.encode([text]), np.float32)[0]
        if vector.shape != (EMBEDDING_DIM,):
            raise InvalidInputError(f"encoder {type(encoder).__name__}: {vector.shape}, expected ({EMBEDDING_DIM},)")
        return vector

    return embed


def similarity(nodes: Sequence[SceneNode], text: str, embed: Callable[[str], np.ndarray]) -> np.ndarray:
    """Return the cosine (n,) 0..1 of each node to ``text``; 1 for an empty text, 0 for opposite meanings."""
    if not text or not nodes:
        return np.ones(len(nodes))
    # a plain product beats an index up to some 1e5 rows
    return np.clip(np.array([node.embedding for node in nodes]) @ embed(text), 0.0, 1.0).astype(np.float64)


def answer(
    nodes: Sequence[SceneNode],
    query: MemoryQuery,
    embed: Callable[[str], np.ndarray],
    config: RetrievalConfig | None = None,
) -> MemoryAnswer:
    """Return the best nodes for ``query``: score = cosine x belief x nearness, ties by id."""
    config = config or RetrievalConfig()
    if query.limit <= 0:
        raise InvalidInputError(f"MemoryQuery.limit: {query.limit}, expected 1 or more")
    if not query.radius_m > 0:
        raise InvalidInputError(f"MemoryQuery.radius_m: {query.radius_m}, expected metres above 0")
    if query.place is not None:
        nodes = _within(nodes, query.place, query.radius_m)
    scores = similarity(nodes, query.text, embed) * [node.belief for node in nodes]
    if query.place is not None and nodes:
        apart = np.linalg.norm([node.pose.position - query.place for node in nodes], axis=1)
        scores = scores * config.half_distance_m / (config.half_distance_m + apart)
    best = sorted(range(len(nodes)), key=lambda i: (-scores[i], nodes[i].id))[: query.limit]
    return MemoryAnswer(tuple(nodes[i] for i in best), tuple(float(scores[i]) for i in best))


def _within(nodes: Sequence[SceneNode], place: np.ndarray, radius_m: float) -> Sequence[SceneNode]:
    place = np.asarray(place, np.float64)
    if place.shape != (3,) or not np.isfinite(place).all():
        raise InvalidInputError(f"MemoryQuery.place: {place.tolist()}, expected 3 finite metres")
    if not nodes or not np.isfinite(radius_m):
        return nodes
    tree = cKDTree(np.array([node.pose.position for node in nodes]))
    return [nodes[i] for i in sorted(tree.query_ball_point(place, radius_m))]
