"""The Nodes tab: the condition of every node, the worst first."""

from __future__ import annotations

import html
from collections.abc import Sequence

from engram.viewer.markup import LEVEL_COLORS, chip, paragraph, table
from engram.viewer.values import LEVELS, NodeState

WORST_FIRST = ("error", "warn", "stale", "ok")
assert set(WORST_FIRST) == set(LEVELS)


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
