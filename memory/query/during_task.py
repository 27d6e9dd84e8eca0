"""DuringTask: a question about the time of a task, such as "what changed during the last task"."""

from __future__ import annotations

import re

from engram.core.contracts import MemoryAnswer
from engram.core.questions import AtTime, DuringTask, Interval, Tasks
from engram.memory.query.context import QueryContext
from engram.memory.query.registry import answer, register
from engram.memory.query.task_rules import LAST_TASK, names_no_task
from engram.memory.query.tasks import chosen, none_like
from engram.memory.stores.episodic.episodes import RUNNING, Past

_JUST_BEFORE_NS = 1000
_SIDES = {"in": "during", "within": "during", "throughout": "during", "while": "during", "when": "during"} | {
    "during": "during", "before": "before", "after": "after", "since": "after",
}  # fmt: skip
_SIDE = rf"(?<=\S )(?P<side>{'|'.join(_SIDES)})"
_LAST = re.compile(rf"{_SIDE} {LAST_TASK}$")
_YOU = re.compile(rf"{_SIDE} (?:you|the robot) (?:last |had |were |was )*(?P<text>.+)$")


def answer_during(question: DuringTask, context: QueryContext) -> MemoryAnswer:
    """Answer the inner question at the time of the newest task that is meant."""
    past = Past((), (), 0) if context.past is None else context.past()
    found = chosen(question.text, past, context)
    if not found.episodes:
        return none_like(Tasks(text=question.text, now_ns=question.now_ns), context, past)
    task, now_ns = found.episodes[-1], context.now_ns(question)
    end_ns = now_ns if task.outcome == RUNNING else min(task.end_ns, now_ns)
    spans: dict[str, Interval] = {
        "during": (task.start_ns, end_ns), "after": (end_ns, now_ns),
        "before": (min(0, task.start_ns - _JUST_BEFORE_NS), task.start_ns - _JUST_BEFORE_NS),
    }  # fmt: skip
    return answer(AtTime(question.question, spans[question.side]), context)


def take_task(words: str) -> tuple[str, str, str]:
    """Return the rest of ``words``, the side and the task they end with: "during the last task", "before you slept".

    Without one, the side is empty.
    """
    match = _LAST.search(words)
    if match is not None:
        return words[: match.start()].strip(), _SIDES[match["side"]], ""
    match = _YOU.search(words)
    if match is not None and not names_no_task(match["text"]):
        return words[: match.start()].strip(), _SIDES[match["side"]], match["text"]
    return words, "", ""


register(DuringTask, answer_during)
