"""Hand-made updates of a scene graph, for the stores that live on them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engram.core.types import GraphEvent, GraphUpdate, SceneEdge, SceneNode
from engram.memory.graph.fusion import FusionConfig, spawn
from tests.memory.scenes import WordEncoder, seen

SECOND = 1_000_000_000
HERE = (0.5, 0.0, 0.02)


def embed(text: str) -> np.ndarray:
    """Return the unit vector (384,) of ``text``: equal words, equal direction."""
    return WordEncoder().encode([text])[0]


def node(node_id: str, label: str, place: Sequence[float] = HERE, stamp_s: float = 0.0) -> SceneNode:
    """Return an object seen once at ``stamp_s``."""
    return spawn(node_id, seen(label, place), int(stamp_s * SECOND), FusionConfig())


def event(
    kind: str, node_id: str, label: str, stamp_s: float, place: Sequence[float] = HERE, other_id: str = ""
) -> GraphEvent:
    """Return an event of one object."""
    stamp_ns = int(stamp_s * SECOND)
    where = np.asarray(place, np.float64)
    return GraphEvent(kind, node_id, label, stamp_ns, where, other_id=other_id, evidence=f"front@{stamp_ns}")


def step(
    *events: GraphEvent,
    stamp_s: float | None = None,
    on: str = "",
    off: str = "",
    deleted: Sequence[str] = (),
    seen_too: Sequence[SceneNode] = (),
) -> GraphUpdate:
    """Return the update of one step: the nodes of its events, and what they all stand ``on`` and no more (``off``)."""
    stamp_ns = int(stamp_s * SECOND) if stamp_s is not None else max((one.stamp_ns for one in events), default=0)
    nodes = [node(one.node_id, one.label, one.place, one.stamp_ns / SECOND) for one in events]
    edges = tuple(SceneEdge(one.node_id, on, "on") for one in events if on)
    gone = tuple(SceneEdge(one.node_id, off, "on") for one in events if off)
    return GraphUpdate(stamp_ns, 1, False, (*nodes, *seen_too), edges, tuple(deleted), gone, events)
