"""What the stores need to know of the graph around an event: labels, what carries an object, a sentence."""

from __future__ import annotations

from collections.abc import Iterable

from engram.core.types import GraphEvent, GraphUpdate, SceneNode

_CARRIES = ("in", "on", "held_by")
_HEIGHT = {"agent": 0, "object": 1, "place": 2, "room": 3, "building": 4}
_VERBS = {
    "new": "appeared",
    "moved": "moved",
    "absent": "went away",
    "returned": "came back",
    "held": "was picked up",
    "released": "was put down",
    "merged": "was taken for one with another",
    "split": "was told apart from another",
    "deleted": "was a false sight",
}


class Surroundings:
    """Follows the updates of the scene graph; grows with the graph and no further."""

    def __init__(self) -> None:
        self.nodes: dict[str, SceneNode] = {}
        self._relations: dict[str, dict[str, str]] = {}  # source -> target -> relation
        self._sources: dict[str, set[str]] = {}  # target -> sources

    def follow(self, update: GraphUpdate) -> None:
        """Take over nodes and relations; a full update replaces everything."""
        if update.full:
            self.nodes, self._relations, self._sources = {}, {}, {}
        self.nodes.update({node.id: node for node in update.nodes})
        for edge in update.deleted_edges:
            self._unrelate(edge.source, edge.target)
        for edge in update.edges:
            self._relations.setdefault(edge.source, {})[edge.target] = edge.relation
            self._sources.setdefault(edge.target, set()).add(edge.source)
        for node_id in update.deleted_nodes:
            self.nodes.pop(node_id, None)
            for target in list(self._relations.get(node_id, ())):
                self._unrelate(node_id, target)
            for source in list(self._sources.get(node_id, ())):
                self._unrelate(source, node_id)

    def support(self, node_id: str) -> tuple[str, str]:
        """Return id and label of what carries or holds ``node_id``, the nearest layer first; ("", "") if unknown."""
        held = self._relations.get(node_id, {})
        found = [self.nodes[one] for one, how in held.items() if how in _CARRIES and one in self.nodes]
        if not found:
            return "", ""
        best = min(found, key=lambda node: (_HEIGHT.get(node.layer, 5), node.id))
        return best.id, best.label

    def neighbours(self, node_id: str) -> set[str]:
        """Return the nodes in any relation with ``node_id``, either way."""
        return set(self._relations.get(node_id, ())) | self._sources.get(node_id, set())

    def stands(self, node_id: str, relation: str, target: str) -> bool:
        """Whether ``node_id`` stands in ``relation`` ("" = any) to a node with the id or label ``target``."""
        return any(
            relation in ("", how) and (target == other or (other in self.nodes and self.nodes[other].label == target))
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
    return f"the {event.label} {_VERBS[event.kind]}{where}"


def summary(sentences: Iterable[str], limit: int = 6) -> str:
    """Join sentences, each once, at most ``limit`` of them."""
    once = list(dict.fromkeys(sentences))
    more = f"; and {len(once) - limit} more" if len(once) > limit else ""
    return "; ".join(once[:limit]) + more
