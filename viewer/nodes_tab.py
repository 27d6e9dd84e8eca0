"""The Nodes tab: the condition of every node, the worst first, and all that one of them says."""

from __future__ import annotations

import html
from collections.abc import Sequence

import viser

from engram.viewer.encodable import choices, encodable
from engram.viewer.markup import LEVEL_COLORS, chip, heading, paragraph, shortened, table, text_table
from engram.viewer.values import LEVELS, NodeState

WORST_FIRST = ("error", "warn", "stale", "ok")
assert set(WORST_FIRST) == set(LEVELS)
NO_NODE = "choose a node"
VALUES_SHOWN, KEY_SHOWN = 200, 80
"""Values of one node that are shown, and characters of a value's name."""


def nodes_html(states: Sequence[NodeState]) -> str:
    """Return the table of nodes."""
    if not states:
        return paragraph("No diagnostics have arrived.")
    ranked = sorted(states, key=lambda s: (WORST_FIRST.index(s.level), s.name))
    return table(
        [
            (chip(s.level, LEVEL_COLORS[s.level]), f"<b>{html.escape(s.name)}</b>", html.escape(s.message))
            for s in ranked
        ]
    )


def values_html(state: NodeState | None) -> str:
    """Return all that a node's diagnostics say beside the message; empty without a node."""
    if state is None:
        return ""
    rows = [(shortened(key, KEY_SHOWN), shortened(value)) for key, value in list(state.values.items())[:VALUES_SHOWN]]
    more = len(state.values) - VALUES_SHOWN
    rest = paragraph(f"and {more} more") if more > 0 else ""
    return heading(state.name) + (text_table(rows) + rest if rows else paragraph("It says nothing more."))


class NodesTab:
    """The list, and the values of the node that a visitor chose: those of the others are not sent."""

    def __init__(self, server: viser.ViserServer) -> None:
        self._list = server.gui.add_html(nodes_html(()))
        self._choice = server.gui.add_dropdown("All that it says", (NO_NODE,), hint="Its newest diagnostics.")
        self._values = server.gui.add_html("")
        self._states: dict[str, NodeState] = {}
        self._choice.on_update(lambda _: self._show_values())

    def show(self, states: Sequence[NodeState]) -> None:
        """Show the condition of every node."""
        self._states = {encodable(state.name): state for state in states}
        self._list.content = nodes_html(states)
        offered = choices((NO_NODE, *sorted(self._states)))
        if offered != self._choice.options:
            self._choice.options = offered
        self._show_values()

    def _show_values(self) -> None:
        self._values.content = values_html(self._states.get(self._choice.value))
