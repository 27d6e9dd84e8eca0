"""Unread: a question with words of time that were not understood, such as "before the meeting"."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from engram.core.contracts import MemoryAnswer
from engram.core.questions import Question, Selection
from engram.core.types.basics import set_fields
from engram.memory.graph.tracker import Tracker
from engram.memory.query.context import QueryContext
from engram.memory.query.grammar import singulars
from engram.memory.query.names import known_names, names
from engram.memory.query.registry import answer, register
from engram.memory.query.time_words import not_understood


@dataclass(frozen=True)
class Unread(Question):
    """``question``, if the words ``said`` belong to a name, such as that of a monday mug; else there is no answer.

    Only the memory that is asked knows its names.
    """

    question: Question
    said: tuple[str, ...]

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
    """Answer the inner question if its words of time belong to a known name.

    Raises:
        InvalidInputError: they do not; lists the forms of times that are understood.
    """
    inner = question.question
    asked = [one for name in ("text", "target") for one in singulars(getattr(inner, name, "")) if one]
    labels = [label for label in _labels(context.tracker) if any(_is_meant(text, label) for text in asked)]
    left = [said for said in question.said if not any(names(said, label) for label in labels)]
    if left:
        raise not_understood(left)
    return answer(inner, context)


def _is_meant(text: str, label: str) -> bool:
    """Whether ``text`` is a part of ``label`` or says more than it: "mug" or "my big monday mug" of "monday mug"."""
    return names(text, label) or names(label, text)


def _labels(tracker: Tracker) -> set[str]:
    """Return every label that a node has or had."""
    history = tracker.history
    numbers = np.flatnonzero(np.bincount(history.label[history.used])) if history.used.any() else ()
    return known_names(tracker) | {history.words[number] for number in numbers}


register(Unread, answer_unread)
