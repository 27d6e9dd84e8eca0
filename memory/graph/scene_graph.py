"""The working view of what the robot knows: node columns, and their relations as a networkx DiGraph."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import networkx as nx

from engram.core.errors import InvalidInputError, unknown_name
from engram.core.questions import RELATIONS
from engram.core.types import SceneEdge, SceneNode
from engram.memory.storage.columns import LAYERS, NodeColumns

EdgeKey = tuple[str, str, str]
SUPPORTS = ("in", "on")
"""Relations of what lies to what it lies in or on."""


class SceneGraph:
    """Nodes keep the order in which they were first known; ids are never used twice."""

    def __init__(self) -> None:
        self.graph = nx.DiGraph()
        self.columns = NodeColumns()
        self._issued: dict[str, int] = {}

    def new_id(self, layer: str) -> str:
        """Issue the next id of ``layer``, for example ``object_0001``."""
        if layer not in LAYERS:
            raise unknown_name("layer", layer, LAYERS)
        self._issued[layer] = self._issued.get(layer, 0) + 1
        return f"{layer}_{self._issued[layer]:04d}"

    @property
    def issued(self) -> Mapping[str, int]:
        """How many ids each layer has issued."""
        return dict(self._issued)

    def restore(self, issued: Mapping[str, int]) -> None:
        """Go on with stored id counters, after the columns were restored."""
        self.graph.add_nodes_from(self.columns.row_of)
        self._issued = dict(issued)

    def put(self, node: SceneNode, votes: Mapping[str, float] | None = None) -> int:
        """Add ``node`` or replace the one with its id; return its row."""
        row = self.columns.put(node, votes)
        self.graph.add_node(node.id)
        return row

    def remove(self, node_id: str) -> None:
        """Forget a node and its edges; raises InvalidInputError when there is none."""
        if node_id not in self.columns:
            raise InvalidInputError(f"node {node_id!r}: not in the graph of {len(self.columns)} nodes")
        self.columns.remove(node_id)
        self.graph.remove_node(node_id)

    def row(self, node_id: str) -> int:
        """Return the row of the node ``node_id``."""
        if node_id not in self.columns:
            raise unknown_name("node", node_id, self.columns.row_of)
        return self.columns.row_of[node_id]

    def node(self, node_id: str) -> SceneNode:
        """Return the node ``node_id``."""
        return self.columns.node(self.row(node_id))

    def nodes(self, *layers: str) -> list[SceneNode]:
        """Return the nodes of ``layers`` (none given = all), oldest first."""
        return self.columns.nodes(self.columns.rows(*layers))

    def edges(self) -> tuple[SceneEdge, ...]:
        """Return all relations, sorted."""
        return tuple(SceneEdge(*key) for key in sorted(self._edge_keys()))

    def related(self, node_id: str) -> Mapping[str, str]:
        """Return target -> relation of the edges that leave ``node_id``."""
        return {target: data["relation"] for target, data in self.graph[node_id].items()}

    def contents(self, node_id: str) -> list[str]:
        """Return the nodes that lie in or on ``node_id``."""
        return [source for source, _, relation in self.graph.in_edges(node_id, data="relation") if relation in SUPPORTS]

    def set_edges(
        self, wanted: Iterable[EdgeKey], touched: Collection[str] | None = None
    ) -> tuple[tuple[SceneEdge, ...], tuple[SceneEdge, ...]]:
        """Make ``wanted`` (source, target, relation) the relations there are; return what was added, removed.

        With ``touched``, the relations of those nodes only; all others stay.
        """
        wanted, have = set(wanted), self._edge_keys(touched)
        added, removed = sorted(wanted - have), sorted(have - wanted)
        self.graph.remove_edges_from((source, target) for source, target, _ in removed)
        for source, target, relation in added:
            if relation not in RELATIONS:
                raise unknown_name("relation", relation, RELATIONS)
            self.graph.add_edge(source, target, relation=relation)
        return tuple(SceneEdge(*key) for key in added), tuple(SceneEdge(*key) for key in removed)

    def _edge_keys(self, touched: Collection[str] | None = None) -> set[EdgeKey]:
        edges = list(self.graph.out_edges(touched, data="relation"))
        if touched is not None:
            edges += self.graph.in_edges(touched, data="relation")
        return set(edges)
