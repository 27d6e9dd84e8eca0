"""Sentences about tasks: which of them ask what the robot did, whether, when and how often."""

from __future__ import annotations

import re

from engram.core.questions import Tasks
from engram.memory.query.grammar import split_relation

_WHO = r"(?:you|we|the robot|your robot)"
_LAST = r"(?:(?:the|your) )?(?:very )?(?:last|latest|previous|most recent)"
_TASK = r"(?:task|job|episode)"
LAST_TASK = rf"{_LAST} {_TASK}"
"""The pattern of the newest task."""
_IT = rf"(?:it|that|this|{LAST_TASK}|the {_TASK})"
_ODD = r"(?:unusual|surprising|strange|unexpected)"
_WHOLE = (
    (rf"what (?:all )?(?:did|have|had) {_WHO} (?:been )?(?:do|done|doing|up to)", "list"),
    (rf"what (?:are|is|were|was) {_WHO} (?:doing|up to)", "list"),
    (rf"(?:what|which) {_TASK}s (?:did {_WHO} do|have {_WHO} done|were (?:there|done)|do you remember)", "list"),
    (rf"(?:list|show me|tell me)(?: all)?(?: the| your)? {_TASK}s", "list"),
    (r"what(?: all)? (?:happened|has happened|did happen|went on|was going on)", "happened"),
    (rf"what (?:was|is|has been) (?:the )?(?:most )?{_ODD}(?: thing| event)?", "unusual"),
    (rf"what surprised you(?: most)?|did anything {_ODD} happen", "unusual"),
    (rf"what (?:was|is) {_LAST} (?:{_TASK}|thing)(?: (?:that )?{_WHO} did)?", "last"),
    (rf"what did {_WHO} (?:just do|do last)", "last"),
    (rf"(?:how|when) did {_IT} (?:end|go|finish|turn out|begin|start)|how long did {_IT} take", "last"),
    (rf"when was {LAST_TASK}|did {_IT} fail|which (?:weights|policy) (?:did|ran) {_IT}", "last"),
    (rf"(?:did|has) {_IT} (?:work|worked|succeed|succeeded|go well)(?: out)?", "whether"),
    (rf"(?:was|is) {_IT} (?:successful|a success|done|finished)|(?:were|was) {_WHO} successful", "whether"),
    (rf"did {_WHO} (?:succeed|manage|make it)|have {_WHO} succeeded", "whether"),
    (rf"how many {_TASK}s (?:did|have) {_WHO} (?:do|done|try|tried|finish|finished)", "count"),
    (rf"how many {_TASK}s (?:succeeded|failed|were there)", "count"),
)  # fmt: skip
"""Whole sentences, each with what it asks."""
_EVER = (
    r"(?:(?:ever|already|just|last|once|actually|really|been able to|(?:manage|managed|try|tried|able) to|"
    r"(?:succeed|succeeded) in|(?:to )?finish(?:ed)?(?= \w+ing)) )*"
)
_DO = rf"(?:did|have|has|had) {_WHO} {_EVER}"
_DOING = rf"(?P<text>\w+ing .+|{_IT})"
_ABOUT = (
    (rf"how (?:often|many times) {_DO}(?P<text>.+)", "count"),
    (rf"when {_DO}(?P<text>.+)", "last"),
    (rf"how did {_DOING} (?:end|go|finish|turn out)|how long did (?P<other>\w+ing .+) take", "last"),
    (rf"did {_DOING} (?:work|succeed)(?: out)?", "whether"),
    (rf"{_DO}(?P<text>.+)", "whether"),
)
"""Sentences with the words of a task, each with what it asks."""
_PARTICIPLE = r"(?P<verb>\w{2,}ed|put|taken|brought|shut|swept|laid|hidden|thrown)"
_PASSIVE = (
    (rf"how (?:often|many times) (?:was|were|has|have) (?P<what>.+?) (?:been )?{_PARTICIPLE}\b(?P<rest>.*)", "count"),
    (rf"when (?:was|were) (?P<what>.+?) (?:last )?{_PARTICIPLE}\b(?P<rest>.*)", "last"),
    (rf"(?:has|have|had) (?P<what>.+?) (?:ever |already )?been {_PARTICIPLE}\b(?P<rest>.*)", "whether"),
)
_NO_TASKS = re.compile(
    r"(?:last )?(?:see|seen|saw|think|thought|believe|believed|know|known|notice|noticed|spot|spotted|find|found|look|"
    r"looked|remember|remembered|hear|heard|hold|held|have|got|recogni[sz]ed?|detect|detected|expect|observe|observed|mean)\b"
)
"""Verbs that begin a question about what was seen or believed."""


def names_no_task(words: str) -> bool:
    """Whether ``words`` begin with a verb of seeing or believing: "saw the cup"."""
    return _NO_TASKS.match(words) is not None


def rule(words: str) -> Tasks | None:
    """Return the question about tasks that ``words`` ask; None = they ask another one."""
    words = re.sub(r" (?:so far|lately|recently|just now)$", "", words)
    for pattern, aspect in _WHOLE:
        if re.fullmatch(pattern, words):
            return Tasks(aspect)
    for pattern, aspect in _ABOUT:
        match = re.fullmatch(pattern, words)
        if match is not None:
            said = match.groupdict()
            text = said["text"] or said.get("other") or ""
            return None if names_no_task(text) else Tasks(aspect, "" if re.fullmatch(_IT, text) else text)
    for pattern, aspect in _PASSIVE:
        match = re.fullmatch(pattern, words)
        if match is not None and not split_relation(match["what"])[1] and not names_no_task(match["verb"]):
            return Tasks(aspect, f"{match['verb']} {match['what']}{match['rest']}")
    return None
