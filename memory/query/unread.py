"""Unread: a question with words that were not understood, such as "before the meeting" or "under the bowl"."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from engram.core.contracts import MemoryAnswer
from engram.core.questions import Question, Selection
from engram.core.types.basics import set_fields
from engram.memory.graph.tracker import Tracker
from engram.memory.query.context import QueryContext
from engram.memory.query.grammar import not_read, singulars
from engram.memory.query.names import known_names, names
from engram.memory.query.registry import answer, register
from engram.memory.query.time_words import not_understood


@dataclass(frozen=True)
class Unread(Question):
    """``question``, if the words of time ``said`` and the ``others`` belong to a name; else there is no answer.

    Such names are monday mug, and salt and pepper shaker.

    Only the memory that is asked knows its names.
    """

    question: Question
    said: tuple[str, ...]
    others: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        inner = self.question
        set_fields(
            self, place=inner.place, radius_m=inner.radius_m, limit=inner.limit, now_ns=inner.now_ns,
            robot_place=inner.robot_place,
        )  # fmt: skip

    def selection(self) -> Selection | None:
        """Return what the stores can filter by."""
        return self.question.selection()

    def refined(self, **changes: Any) -> Self:
        """Return the question with other values of the fields that every question has."""
        return replace(self, question=self.question.refined(**changes))


def answer_unread(question: Unread, context: QueryContext) -> MemoryAnswer:
    """Answer the inner question if its unread words belong to a known name.

    Raises:
        InvalidInputError: they do not; lists what is understood.
    """
    inner = question.question
    asked = [one for name in ("text", "target") for one in singulars(getattr(inner, name, "")) if one]
    labels = [label for label in _labels(context.tracker) if any(_is_meant(text, label) for text in asked)]
    for said, error in ((question.said, not_understood), (question.others, not_read)):
        if left := [one for i, one in enumerate(said) if not _belongs(one, said[:i].count(one), labels)]:
            raise error(left)
    return answer(inner, context)


def _belongs(said: str, before: int, labels: Collection[str]) -> bool:
    """Whether ``said``, which was said ``before`` times before, is as often in one of ``labels``."""
    return any(names(said, label) and max(1, label.casefold().split().count(said)) > before for label in labels)


def _is_meant(text: str, label: str) -> bool:
    """Whether ``text`` is a part of ``label`` or says more than it: "mug" or "my big monday mug" of "monday mug"."""
    return names(text, label) or names(label, text)


def _labels(tracker: Tracker) -> set[str]:
    """Return every label that a node has or had."""
    history = tracker.history
    numbers = np.flatnonzero(np.bincount(history.label[history.used])) if history.used.any() else ()
    return known_names(tracker) | {history.words[number] for number in numbers}


register(Unread, answer_unread)
