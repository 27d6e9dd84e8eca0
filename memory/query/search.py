"""What fits a question: over the nodes of today, or over the facts of the past."""

from __future__ import annotations

from engram.core.errors import unknown_name
from engram.core.questions import Selection
from engram.memory.graph.tracker import Tracker
from engram.memory.graph.vectors import VectorIndex
from engram.memory.query.current import search_now
from engram.memory.query.hits import Hits, RetrievalConfig, Stays
from engram.memory.query.names import anchors, known_names
from engram.memory.query.temporal import search_then


def search(
    tracker: Tracker, index: VectorIndex, query: Selection, config: RetrievalConfig, stays: Stays | None = None
) -> Hits:
    """Return what fits ``query``, whose ``vector`` is set if it has a text; ``stays`` knows how long objects stay.

    Raises:
        UnknownNameError: the relation's target is not known; lists what is.
    """
    if query.valid_ns is not None or query.believed_ns is not None:
        return search_then(tracker, index, query, config)
    targets = anchors(tracker, query.target) if query.target else None
    if targets == []:
        raise unknown_name("node or label", query.target, known_names(tracker))
    return search_now(tracker, index, query, targets, config, stays)
