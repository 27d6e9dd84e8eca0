"""Questions in English -> typed questions: a small explicit grammar, no model, the same result every time.

question  := [opening] [object] [relation thing] [time] ["?"]                      FindObject, Relation
count     := "how many" objects [relation thing] [time]                             Count
attribute := "is the" object color | "what color is the" object                     Attribute
robots    := "which robot|who" ("can reach|grasp|hold" thing | "has" part | "opened the drawer" | "are there") |
             "what can <robot> do"                                                  Capability
opening   := "where is|was|were" | "what is|was" | "when did you last see" | "did you see" | ...
             "what|where did you think|believe" asks what the memory believed at that time
relation  := ("in" | "on" | "near" | "held by" | ...) [article] words
time      := "now" | "yesterday" | "this morning" | "on tuesday" | "at 10:00" | "before|after lunch" |
             "20 minutes ago" | "at 2026-11-21 10:00" | "at 12.5 s" | combinations such as "yesterday at 9 pm"

A time makes an AtTime of any question. Each kind of question brings its own rule: see
:mod:`engram.memory.query.registry`.
"""

from __future__ import annotations

import re

from engram.core.questions import AtTime, Question
from engram.memory.query import builtin  # noqa: F401 - registers the kinds of questions
from engram.memory.query.registry import understood
from engram.memory.query.times import QuestionConfig, Times


def parse(text: str, now_ns: int, limit: int = 5, config: QuestionConfig | None = None) -> Question:
    """Return the question that ``text`` asks at ``now_ns``; words that no rule knows describe the object.

    Raises:
        InvalidInputError: a date or a time of day that does not exist, or one that is still to come.
    """
    words = " ".join(text.lower().replace("?", " ").replace(",", " ").rstrip(". ").split())
    believed = re.search(r"\b(think|thought|believe|believed)\b", words) is not None
    words, valid = Times(now_ns, config or QuestionConfig()).take(words)
    question = understood(words).refined(limit=limit, now_ns=now_ns)
    return question if valid is None else AtTime(question, valid, valid[1] if believed else None)
