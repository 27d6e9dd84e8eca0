"""The Memory tab: a conversation with the memory, the slider through its past, and what it holds."""

from __future__ import annotations

from collections.abc import Callable

import viser

from engram.viewer.conversation import Conversation
from engram.viewer.remembered import details_html, remembered_html
from engram.viewer.time_travel import TimeTravel
from engram.viewer.values import Answer, Graph, PageActions


class MemoryTab:
    """``on_show`` is called with an answer whose object a visitor wants to see in 3D."""

    def __init__(
        self, server: viser.ViserServer, actions: PageActions, on_show: Callable[[Answer], None],
        go: Callable[[int | None], None],
    ) -> None:  # fmt: skip
        self.conversation = Conversation(server, actions.ask, on_show)
        self._picked = server.gui.add_html("")
        self.time = TimeTravel(server, go)
        self._list = server.gui.add_html(remembered_html(Graph()))

    def show_graph(self, graph: Graph, picked: str) -> None:
        """List what the graph holds, and all that is known of the object that was picked."""
        self._list.content = remembered_html(graph.shown())
        node = graph.nodes.get(picked)
        self._picked.content = details_html(node, graph) if node is not None else ""
