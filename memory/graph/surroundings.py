"""The part of the scene graph that the stores need: labels, supports, neighbours, and sentences about events."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engram.core.types import GraphEvent, GraphUpdate

_CARRIES = ("in", "on", "held_by")
_HEIGHT = {"agent": 0, "object": 1, "place": 2, "room": 3, "building": 4}
VERBS = {
    "new": "appeared",
    "moved": "moved",
    "absent": "went away",
    "returned": "came back",
    "held": "was picked up",
    "released": "was put down",
    "merged": "was taken for one with another",
    "split": "was told apart from another",
    "deleted": "was a false detection",
}
"""Kinds of events -> what the object did."""


class Surroundings:
    """Mirrors labels and relations of the scene graph from its updates."""

    def __init__(self) -> None:
        self.labels: dict[str, tuple[str, int]] = {}  # node -> label, height of its layer
        self._embeddings: dict[str, np.ndarray] = {}  # (384,) of the nodes in the newest update only
        self._relations: dict[str, dict[str, str]] = {}  # source -> target -> relation
        self._sources: dict[str, set[str]] = {}  # target -> sources

    def follow(self, update: GraphUpdate) -> None:
        """Take over nodes and relations; a full update replaces everything."""
        if update.full:
            self.labels, self._relations, self._sources = {}, {}, {}
        self.labels.update({node.id: (node.label, _HEIGHT.get(node.layer, 5)) for node in update.nodes})
        self._embeddings = {} if update.full else {node.id: node.embedding for node in update.nodes}
        for edge in update.deleted_edges:
            self._unrelate(edge.source, edge.target)
        for edge in update.edges:
            self._relations.setdefault(edge.source, {})[edge.target] = edge.relation
            self._sources.setdefault(edge.target, set()).add(edge.source)
        for node_id in update.deleted_nodes:
            self.labels.pop(node_id, None)
            for target in list(self._relations.get(node_id, ())):
                self._unrelate(node_id, target)
            for source in list(self._sources.get(node_id, ())):
                self._unrelate(source, node_id)

    def support(self, node_id: str) -> tuple[str, str]:
        """Return id and label of what carries or holds ``node_id``, the nearest layer first; ("", "") if unknown."""
        held = self._relations.get(node_id, {})
        found = [(self.labels[one][1], one) for one, how in held.items() if how in _CARRIES and one in self.labels]
        if not found:
            return "", ""
        _, best = min(found)
        return best, self.labels[best][0]

    def embedding(self, node_id: str) -> np.ndarray | None:
        """Return the vector (384,) of a node that the newest update carried; None for any other."""
        return self._embeddings.get(node_id)

    def neighbours(self, node_id: str) -> set[str]:
        """Return the nodes in any relation with ``node_id``, either way."""
        return set(self._relations.get(node_id, ())) | self._sources.get(node_id, set())

    def stands(self, node_id: str, relation: str, target: str) -> bool:
        """Whether ``node_id`` stands in ``relation`` to a node with the id or label ``target``; "" = any."""
        return any(
            relation in ("", how) and target in ("", other, self.labels.get(other, ("", 0))[0])
            for other, how in self._relations.get(node_id, {}).items()
        )

    def _unrelate(self, source: str, target: str) -> None:
        self._relations.get(source, {}).pop(target, None)
        self._sources.get(target, set()).discard(source)
        if not self._relations.get(source, True):
            del self._relations[source]
        if not self._sources.get(target, True):
            del self._sources[target]


def describe(event: GraphEvent, support_label: str = "") -> str:
    """Say what happened: "the red cube moved to the bin"."""
    where = {"absent": "", "held": ""}.get(event.kind, f" ({support_label})" if support_label else "")
    if support_label and event.kind in ("moved", "released"):
        where = f" to the {support_label}" if event.kind == "moved" else f" on the {support_label}"
    return f"the {event.label} {VERBS[event.kind]}{where}"


def summary(sentences: Iterable[str], limit: int = 6) -> str:
    """Join sentences, each once, at most ``limit`` of them."""
    once = list(dict.fromkeys(sentences))
    more = f"; and {len(once) - limit} more" if len(once) > limit else ""
    return "; ".join(once[:limit]) + more
