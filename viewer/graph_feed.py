"""Which scene graph the page shows: the live one, followed change by change, or a past that a visitor wants."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from engram.core.types import GraphUpdate
from engram.runtime.graph_mirror import GraphMirror
from engram.viewer.values import Graph

RETRY_S = 1.0
"""Least time between two requests for the whole graph, and for a past where nobody was there to ask [s]."""
LOST_S = 10.0
"""A request that was not answered for so long is lost: its memory is gone, or was too busy [s]."""


class AskGraph(Protocol):
    """Asks the memory for its whole graph, as of ``at_ns``; None: now."""

    def __call__(self, at_ns: int | None, then: Callable[[str, GraphUpdate], None]) -> bool:
        """Return False if there is nobody to ask, else call ``then`` with boot id and graph when they come."""


class GraphFeed:
    """Hands every graph that is to be shown to ``show``: the live one when it changed, or the past asked for.

    Args:
        ask: asks the memory.
        show: takes the graph that is to be shown.
        show_span: takes how far the memory goes back, and now [ns].
        clock_ns: tells the time of the node's clock.
    """

    def __init__(
        self,
        ask: AskGraph,
        show: Callable[[Graph], None],
        show_span: Callable[[int, int], None],
        clock_ns: Callable[[], int],
    ) -> None:
        self._ask, self._show, self._show_span, self._clock_ns = ask, show, show_span, clock_ns
        self._mirror = GraphMirror()
        self._shown: tuple[str, int] | None = None  # boot id and sequence; None: show again
        self._all_again_s = 0.0  # when to ask again for the live graph, monotonic; until then one request is under way
        self._lost = True  # what the live graph is: only all of it counts
        self._stamp_ns = 0  # of the newest change
        self._oldest_ns = 0  # first evidence of anything
        self._wanted_ns: int | None = None  # the past to show; None: now
        self._past: Graph | None = None  # has come and is yet to be shown
        self._again_s: float | None = None  # when to ask again for the past that has not come; None: none is awaited

    def go_to(self, at_ns: int | None) -> None:
        """Show the graph as of ``at_ns`` from now on; None: the live one."""
        self._wanted_ns, self._shown, self._past = at_ns, None, None
        if self._again_s is None or time.monotonic() > self._again_s:
            self._ask_past()

    def refresh(self) -> None:
        """Show the live graph if it changed, or the past that has come, and how far back the memory goes.

        What could not be shown is shown at the next call.
        """
        self._show_span(self._oldest_ns, self._now_ns())
        newest = (self._mirror.boot_id, self._mirror.sequence)
        if self._wanted_ns is None and newest != self._shown:
            self._show(Graph(dict(self._mirror.nodes), tuple(self._mirror.edges.values()), self._now_ns()))
            self._shown = newest
        elif self._wanted_ns is not None and self._past is not None:
            self._show(self._past)
            self._past = None
        elif self._again_s is not None and time.monotonic() > self._again_s:
            self._ask_past()  # nobody was there or answered, or the memory was too busy to

    def take(self, boot_id: str, update: GraphUpdate) -> None:
        """Take in a change of the graph, or all of it."""
        self._lost = not self._mirror.apply(boot_id, update)
        if self._lost:
            self._ask_all()
            return
        self._stamp_ns = max(self._stamp_ns, update.stamp_ns)
        seen = [n.first_seen_ns for n in update.nodes if n.first_seen_ns > 0]
        self._oldest_ns = min([*seen, self._oldest_ns or self._now_ns()])

    def ask_until_known(self) -> None:
        """Ask for the live graph while it is not known: there may be no further change that shows so."""
        if self._lost:
            self._ask_all()

    def _now_ns(self) -> int:
        return max(self._clock_ns(), self._stamp_ns)

    def _ask_all(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._all_again_s and self._ask(None, self._take_all):
            self._all_again_s = now_s + LOST_S

    def _take_all(self, boot_id: str, graph: GraphUpdate) -> None:
        self._all_again_s = time.monotonic() + RETRY_S
        self.take(boot_id, graph)

    def _ask_past(self) -> None:
        """Ask for the past that is wanted now; while the slider moves, only one request is under way."""
        at_ns = self._wanted_ns
        if at_ns is not None:
            self._again_s = time.monotonic() + LOST_S
            if not self._ask(at_ns, lambda _, graph: self._take_past(at_ns, graph)):
                self._again_s = time.monotonic() + RETRY_S

    def _take_past(self, asked_ns: int, graph: GraphUpdate) -> None:
        self._again_s = None
        if self._wanted_ns is not None:
            self._past = Graph({n.id: n for n in graph.nodes}, graph.edges, asked_ns, past=True)
        if self._wanted_ns != asked_ns:
            self._ask_past()
