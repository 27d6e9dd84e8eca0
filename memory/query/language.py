"""Questions in English -> typed questions: a small explicit grammar, no model, the same result every time.

question  := [opening] [object] [relation thing] [time] ["?"]                      FindObject, Relation
count     := "how many" objects [relation thing] [time]                             Count
attribute := "is the" object color | "what color is the" object                     Attribute
tasks     := "what did you do" | "what happened" | "what was the last task" | "did it work" | "what was unusual" |
             ("did|have you" | "when|how often did you" | "how did") task             Tasks
changes   := "what changed|moved" | "what is new|gone" | "what happened to" object  Changes
robots    := "which robot|who" ("can reach|grasp|hold" thing | "has" part | "opened the drawer" | "are there") |
             "what can <robot> do"                                                  Capability
opening   := "where is|was|were" | "what is|was" | "when|how long ago did you last see" | "did you see" | ...
             "what|where did you think|believe" asks what the memory believed at that time
relation  := ("in" | "on" | "near" | "held by" | ...) [article] words
time      := "now" | ["before|after|since|until"] (day [hour] | hour [day] | moment) |
             "between" time "and" time | "from" time "to" time | "in the last 10 minutes" |
             "during|before|after|since the last task" | "while|before|after|since you" task   DuringTask
day       := "yesterday" | "on tuesday" | "last night" | "last week" | "2026-11-21" | "2 days ago"
hour      := "at 10:00" | "at 9 pm" | "at midnight" | "this morning" | "at lunch"
moment    := "20 minutes ago" | "2026-11-21 10:00" | "at 12.5 s"

A time makes an AtTime of any question. Words of time that fit no rule make it an Unread one, which is answered only
where they belong to a name; so do "not", "and", "under" and the like beside an object. Each kind of question brings
its own rule: see :mod:`engram.memory.query.registry`.
"""

from __future__ import annotations

import re

from engram.core.questions import (
    AtTime,
    Attribute,
    Capability,
    Changes,
    Count,
    DuringTask,
    FindObject,
    Question,
    Relation,
    Tasks,
)
from engram.core.words import check_words
from engram.memory.query import builtin  # noqa: F401 - registers the kinds of questions
from engram.memory.query.during_task import take_task
from engram.memory.query.grammar import not_read, unread_words
from engram.memory.query.registry import understood
from engram.memory.query.task_words import is_negation
from engram.memory.query.time_words import not_understood, unread
from engram.memory.query.times import QuestionConfig, Times
from engram.memory.query.unread import Unread

_HOW_LONG_AGO = re.compile(r"^how long ago (?=\w)")
_SINCE_WHEN = re.compile(r"^how long (?:is it|has it been|it is)? ?since you (?:last )?(?:saw|have seen) ")
_NEWEST = ("lately", "recently")
"""Words of time that mean the newest of what a kind of question lists."""


def parse(text: str, now_ns: int, limit: int = 5, config: QuestionConfig | None = None) -> Question:
    """Return the question that ``text`` asks at ``now_ns``; words that no rule knows describe the object.

    Raises:
        InvalidInputError: more than ``WORDS_MAX`` characters, a date or a time of day that does not exist, one that is
            still to come, or times that do not go together.
    """
    check_words("question", text)
    words = " ".join(text.lower().replace("?", " ").replace(",", " ").rstrip(". ").split())
    believed = re.search(r"\b(think|thought|believe|believed)\b", words) is not None
    words = _SINCE_WHEN.sub("when did you last see ", _HOW_LONG_AGO.sub("when ", words))
    words, valid = Times(now_ns, config or QuestionConfig()).take(words)
    words, side, task = take_task(words)
    question = understood(words).refined(limit=limit, now_ns=now_ns)
    times = [one for one in unread(words) if not (one in _NEWEST and isinstance(question, Changes | Tasks))]
    others = [one for one in _described(question) if one not in times]
    if times or others:
        if isinstance(question, Capability) and question.ability == "do":  # the words describe a task, which is no name
            raise not_understood(times) if times else not_read(others)
        question = Unread(question, tuple(times), tuple(others))
    question = DuringTask(question, side, task) if side else question
    return question if valid is None else AtTime(question, valid, valid[1] if believed else None)


def _described(question: Question) -> tuple[str, ...]:
    """Return the words in the description of an object that were not understood; of a task only "not" and the like."""
    if isinstance(question, Capability) and question.ability == "do":
        return tuple(one for one in unread_words(question.text) if is_negation(one))
    if not isinstance(question, FindObject | Relation | Count | Attribute | Changes | Capability):
        return ()
    return tuple(one for name in ("text", "target") for one in unread_words(getattr(question, name, "")))
