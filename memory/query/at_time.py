"""AtTime: the same question, asked about the past."""

from __future__ import annotations

from dataclasses import replace

from engram.core.contracts import MemoryAnswer
from engram.core.questions import AtTime
from engram.memory.query.context import QueryContext
from engram.memory.query.registry import answer, register


def answer_at_time(question: AtTime, context: QueryContext) -> MemoryAnswer:
    """Answer the inner question in the context of its time. The grammar finds times itself: there is no rule."""
    then = replace(context, valid_ns=question.valid_ns, believed_ns=question.believed_ns)
    return answer(question.question, then)


register(AtTime, answer_at_time)
