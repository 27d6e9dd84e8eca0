"""The scene graph for the page: follows memory/graph, and asks memory/get_graph for a past that a visitor wants."""

from __future__ import annotations

import time
from collections.abc import Callable

from rclpy.client import Client
from rclpy.task import Future

from engram.core.types import GraphUpdate
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.runtime.graph_mirror import GraphMirror
from engram.viewer.values import Graph
from engram_interfaces.msg import SceneGraphUpdate
from engram_interfaces.srv import GetGraph

RETRY_S = 1.0
"""Least time between two requests for the whole graph [s]."""


class GraphFeed:
    """Hands every graph that is to be shown to ``show``: the live one when it changed, or the past asked for."""

    def __init__(self, node: EngramNode, show: Callable[[Graph], None], show_span: Callable[[int, int], None]) -> None:
        self._node, self._show, self._show_span = node, show, show_span
        self._client: Client = node.create_client(GetGraph, "memory/get_graph")
        self._mirror = GraphMirror()
        self._shown: tuple[str, int] | None = None  # boot id and sequence; None: show again
        self._asked_s = 0.0  # monotonic
        self._stamp_ns = 0  # of the newest change
        self._oldest_ns = 0  # first evidence of anything
        self._wanted_ns: int | None = None  # the past to show; None: now
        self._asking_ns: int | None = None  # the past that was asked for and has not come

    def start(self) -> None:
        """Follow the graph for as long as the node is active."""
        self._node.subscribe(SceneGraphUpdate, "memory/graph", self._on_update, qos.GRAPH)
        self._node.every(RETRY_S, self._ask_until_known, "memory/get_graph")

    def go_to(self, at_ns: int | None) -> None:
        """Show the graph as of ``at_ns`` from now on; None: the live one."""
        self._wanted_ns, self._shown = at_ns, None
        if at_ns is not None and self._asking_ns is None:
            self._ask_past()

    def refresh(self) -> None:
        """Show the live graph if it changed and no past is looked at, and how far back the memory goes."""
        self._show_span(self._oldest_ns, self._now_ns())
        newest = (self._mirror.boot_id, self._mirror.sequence)
        if self._wanted_ns is None and newest != self._shown:
            self._shown = newest
            self._show(Graph(dict(self._mirror.nodes), tuple(self._mirror.edges.values()), self._now_ns()))

    def _now_ns(self) -> int:
        return max(self._node.get_clock().now().nanoseconds, self._stamp_ns)

    def _on_update(self, msg: SceneGraphUpdate) -> None:
        self._take(msg.boot_id, messages.graph_from_msg(msg))

    def _take(self, boot_id: str, update: GraphUpdate) -> None:
        if not self._mirror.apply(boot_id, update):
            self._ask_all()
            return
        self._stamp_ns = max(self._stamp_ns, update.stamp_ns)
        seen = [n.first_seen_ns for n in update.nodes if n.first_seen_ns > 0]
        self._oldest_ns = min([*seen, self._oldest_ns or self._now_ns()])

    def _ask_until_known(self) -> None:
        """Without any graph yet, ask for it: this node may have come after the last change."""
        if not self._mirror.boot_id:
            self._ask_all()

    def _ask_all(self) -> None:
        now_s = time.monotonic()
        if now_s - self._asked_s >= RETRY_S and self._client.service_is_ready():
            self._asked_s = now_s
            self._client.call_async(GetGraph.Request()).add_done_callback(self._on_all)

    def _on_all(self, future: Future) -> None:
        answer = future.result()
        if answer is not None:
            self._take(answer.graph.boot_id, messages.graph_from_msg(answer.graph))

    def _ask_past(self) -> None:
        """Ask for the past that is wanted now; while the slider moves, only one request is under way."""
        at_ns = self._wanted_ns
        if at_ns is None or not self._client.service_is_ready():
            return
        self._asking_ns = at_ns
        self._client.call_async(GetGraph.Request(at=messages.to_stamp(at_ns))).add_done_callback(self._on_past)

    def _on_past(self, future: Future) -> None:
        asked_ns, self._asking_ns = self._asking_ns, None
        answer = future.result()
        if answer is not None and self._wanted_ns is not None:
            graph = messages.graph_from_msg(answer.graph)
            self._show(Graph({n.id: n for n in graph.nodes}, graph.edges, asked_ns or 0, past=True))
        if self._wanted_ns != asked_ns:
            self._ask_past()
