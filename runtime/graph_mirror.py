"""A subscriber's copy of the scene graph. It applies updates and detects lost ones. No ROS."""

from __future__ import annotations

from engram.core.types import GraphUpdate, SceneEdge, SceneNode

BACKLOG = 64
"""Updates that a late reader is given again at most. When more of them are behind the mirror, the mirror is wrong: it
took in a sequence number that the memory has not reached."""


class GraphMirror:
    """Applies updates of one ``boot_id`` in order of their sequence; a gap or a new boot needs the full graph."""

    def __init__(self) -> None:
        self.nodes: dict[str, SceneNode] = {}
        self.edges: dict[tuple[str, str, str], SceneEdge] = {}
        self.boot_id = ""
        self.sequence = 0
        self._behind = 0  # updates in a row with a sequence that was seen before

    def apply(self, boot_id: str, update: GraphUpdate) -> bool:
        """Apply an update. False: an update before it was lost, so the full graph must be requested."""
        if update.full:
            if boot_id == self.boot_id and update.sequence < self.sequence:
                return True  # an answer that newer updates have overtaken
            self.nodes, self.edges = {}, {}
        elif boot_id != self.boot_id or update.sequence > self.sequence + 1:
            return False
        elif update.sequence <= self.sequence:
            self._behind += 1
            if self._behind <= BACKLOG:
                return True  # seen before
            self.boot_id, self._behind = "", 0  # whatever full graph comes next counts
            return False
        self._behind = 0
        self.boot_id, self.sequence = boot_id, update.sequence
        self.nodes |= {node.id: node for node in update.nodes}
        self.edges |= {_key(edge): edge for edge in update.edges}
        for name in update.deleted_nodes:
            self.nodes.pop(name, None)
        for edge in update.deleted_edges:
            self.edges.pop(_key(edge), None)
        return True


def _key(edge: SceneEdge) -> tuple[str, str, str]:
    return edge.source, edge.target, edge.relation
