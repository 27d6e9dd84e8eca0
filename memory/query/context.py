"""What the handlers of questions work with: the scene graph, its index and what the other stores know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engram.core.questions import Interval, Question, Selection
from engram.core.types import SceneNode
from engram.memory.graph.text_embedding import Embed
from engram.memory.graph.tracker import Tracker
from engram.memory.graph.vectors import VectorIndex
from engram.memory.query.advice import AdviceConfig
from engram.memory.query.hits import Hits, RetrievalConfig, Stays
from engram.memory.query.search import search
from engram.memory.stores.episodic.episodes import Past
from engram.memory.stores.short_term.store import Recent

UsualPlaces = Callable[[SceneNode], Sequence[tuple[np.ndarray, float]]]
"""A node -> its usual places (3,) m, each with its share of the stays."""


@dataclass(frozen=True)
class QueryContext:
    """The memory as a question finds it: now, or with ``valid_ns`` or ``believed_ns`` as it was or was believed."""

    tracker: Tracker
    index: VectorIndex
    embed: Embed
    retrieval: RetrievalConfig
    advice: AdviceConfig
    stays: Stays | None = None  # chance that an object is still where it was; None = no experience
    usual: UsualPlaces | None = None
    past: Callable[[], Past] | None = None  # reads the tasks and events; None = the memory keeps none
    recent: Callable[[], Recent] | None = None  # reads the recent changes; None = the memory keeps none
    valid_ns: Interval | None = None
    believed_ns: int | None = None

    @property
    def is_past(self) -> bool:
        """Whether the question is about the past."""
        return self.valid_ns is not None or self.believed_ns is not None

    def now_ns(self, question: Question) -> int:
        """Return when ``question`` is asked."""
        return self.tracker.stamp_ns if question.now_ns is None else question.now_ns

    def about_ns(self, question: Question) -> int:
        """Return the instant that ``question`` is about: now, or the end of the interval in the past."""
        if self.valid_ns is not None:
            return self.valid_ns[1]
        return self.now_ns(question) if self.believed_ns is None else self.believed_ns

    def selection(self, question: Question) -> Selection:
        """Return what of ``question`` the graph is filtered by, at this context's time."""
        chosen = question.selection() or Selection(limit=question.limit, now_ns=question.now_ns)
        return self.embedded(replace(chosen, valid_ns=self.valid_ns, believed_ns=self.believed_ns))

    def embedded(self, selection: Selection) -> Selection:
        """Return ``selection`` with the vector of its text."""
        if not selection.text or selection.vector is not None:
            return selection
        return replace(selection, vector=self.embed(selection.text))

    def search(self, selection: Selection) -> Hits:
        """Return the nodes that fit, best first.

        Raises:
            UnknownNameError: the target of the relation was never known; lists what is.
        """
        return search(self.tracker, self.index, self.embedded(selection), self.retrieval, self.stays)
