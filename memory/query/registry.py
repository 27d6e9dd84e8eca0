"""The kinds of questions: for each a handler that answers it and a grammar rule that finds it in a sentence.

A new kind is one file: a frozen subclass of :class:`~engram.core.questions.Question`, a handler, a rule, and a call of
:func:`register`. Importing the file adds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engram.core.contracts import MemoryAnswer
from engram.core.errors import unknown_name
from engram.core.questions import Question
from engram.memory.query.context import QueryContext

Handler = Callable[[Any, QueryContext], MemoryAnswer]
"""A question of its kind and the memory -> the answer."""
Rule = Callable[[str], Question | None]
"""A sentence in lower case, without its time and punctuation -> the question that it asks; None = another kind."""


@dataclass(frozen=True)
class _Kind:
    handler: Handler
    rule: Rule | None
    priority: int


_KINDS: dict[type[Question], _Kind] = {}


def register(kind: type[Question], handler: Handler, rule: Rule | None = None, priority: int = 10) -> None:
    """Add a kind of question, or replace its handler and rule.

    Rules are tried in the order of ``priority``, the highest first, and of two with the same the one registered last.
    Relation has 1 and FindObject, whose rule takes any words, 0.
    """
    _KINDS.pop(kind, None)
    _KINDS[kind] = _Kind(handler, rule, priority)


def answer(question: Question, context: QueryContext) -> MemoryAnswer:
    """Let the handler of its kind answer ``question``.

    Raises:
        UnknownNameError: nobody registered this kind; lists the kinds there are.
    """
    found = _KINDS.get(type(question))
    if found is None:
        names = [kind.__name__ for kind in _KINDS]
        raise unknown_name("kind of question", type(question).__name__, names)
    return found.handler(question, context)


def understood(words: str) -> Question:
    """Return the question that a sentence without its time asks.

    Raises:
        UnknownNameError: no rule fits.
    """
    for kind in sorted(reversed(_KINDS.values()), key=lambda one: -one.priority):
        question = None if kind.rule is None else kind.rule(words)
        if question is not None:
            return question
    raise unknown_name("question", words, [kind.__name__ for kind in _KINDS])
