"""What an instruction wants of the scene: one relation between things, read from its words.

English imperatives of one step, such as "put the red cube in the bin" or "please get the drawer open". What asks for
several steps, or for something that no relation describes, has no goal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from engram.core.words import WORDS_MAX

ON, IN, AT, ABOVE, TOUCHED, PRESSED, OPEN, HELD = "on", "in", "at", "above", "touched", "pressed", "open", "held"


@dataclass(frozen=True)
class Goal:
    """``thing`` shall stand in ``relation``, to ``target`` where the relation has one."""

    relation: str
    """on, in, at (beside what it lies on: a mark), above (the hand), touched, pressed, open, held."""
    thing: str
    """Its description in the instruction, such as "red cube"."""
    target: str = ""

    def __str__(self) -> str:
        hand = {ABOVE: "the hand above ", TOUCHED: "the hand at "}.get(self.relation, "")
        if hand:
            return f"{hand}the {self.thing}"
        return f"the {self.thing} {self.relation}" + (f" the {self.target}" if self.target else "")


_THING = r"(?:the |a |an |my |your |that |this )?(?P<thing>[\w'-]+(?: [\w'-]+){0,3}?)"
_BUTTON = r"(?:the |a |an |my |your )?(?P<thing>(?:[\w'-]+ ){0,3}?(?:button|switch|key|buzzer|bell))"
_TARGET = r"(?:the |a |an |my |your |that |this )?(?P<target>[\w'-]+(?: [\w'-]+){0,3}?)"
_HAND = r"(?:the |your )?(?:gripper|hand|arm)"
_PUT = r"(?:put|place|set|lay|drop|throw|stack|move|bring|carry)"
_TAKE = r"(?:pick up|grab|take|lift|fetch)"
_PUSH = r"(?:push|slide|shove|nudge)"
_ONTO, _INTO = r"(?:on top of|onto|on)", r"(?:into|inside of|inside|in)"
_TO = r"(?:over to|onto|to|on)"
_PATTERNS: tuple[tuple[str, str], ...] = (
    (OPEN, rf"(?:open|pull open) {_THING}(?: by its \w+)?"),
    (OPEN, rf"(?:pull|slide|push|get) {_THING} open"),
    (OPEN, rf"pull out {_THING}|pull {_THING.replace('thing', 'other')} out"),
    (OPEN, rf"(?:grab|pull on) the handle (?:and open|until) {_THING}(?: is open)?"),
    (PRESSED, rf"(?:press|press down on|touch and press) {_THING}"),
    (PRESSED, rf"(?:push down|push|activate|hit) {_BUTTON}"),
    (PRESSED, rf"(?:press|push) {_BUTTON} down"),
    (PRESSED, rf"give {_THING} a press"),
    (ABOVE, rf"(?:move|hover|go) (?:above|over) {_THING}"),
    (ABOVE, rf"(?:reach for|go to) {_THING}"),
    (ABOVE, rf"(?:put|hold|bring|position|move) {_HAND} (?:over|above|to) {_THING}"),
    (TOUCHED, rf"(?:touch|tap(?: on)?) {_THING}"),
    (IN, rf"{_PUT} {_THING} {_INTO} {_TARGET}"),
    (IN, rf"{_TAKE} {_THING} and {_PUT} it {_INTO} {_TARGET}"),
    (AT, rf"{_PUSH} {_THING} {_TO} {_TARGET}"),
    (AT, rf"move {_THING} {_TO} {_TARGET} by pushing it"),
    (AT, rf"(?:move|bring|carry|take) {_THING} (?:over )?to {_TARGET}"),
    (ON, rf"{_PUT} {_THING} {_ONTO} {_TARGET}"),
    (ON, rf"{_TAKE} {_THING} and {_PUT} it {_ONTO} {_TARGET}"),
    (ON, rf"build a tower with {_THING} {_ONTO} {_TARGET}"),
    (HELD, rf"{_TAKE} {_THING}"),
    (HELD, rf"(?:pick|lift) {_THING} up"),
)  # the first that fits the whole instruction
_POLITE = r"(?:(?:please|could you|can you|would you|will you|now),? )+"
_TRAILING = ("please", "now", "once", "fully", "carefully", "gently", "slowly")
"""Words at the end that change nothing."""
_SEVERAL = re.compile(r"[,;:?]|\b(?:then|after|before|when|while|once|twice|back|again|until it|both|every|each|or)\b")
"""Words of an instruction that asks for more than one thing, or for a state that is over."""
_NEGATED = re.compile(
    r"\b(?:not|no|never|none|nothing|nowhere|neither|nor|without|don't|cannot|stop|avoid|except|but|unless|if)\b"
)
_NO_NAME = re.compile(
    r"\b(?:it|them|that|this|these|those|one|something|anything|everything|things|all|the|an?|and|me|in|on|of|to|out|"
    r"away|off|up|down|left|right|home|closed|shut|open|half|halfway|partly|upright|near|beside|behind|under|next|"
    r"between)\b"
)
"""Words that no name of a thing has: they stand for something else, or say where or how."""


def goal_of(instruction: str) -> Goal | None:
    """Return what ``instruction`` wants of the scene; None: no relation that is known here says it.

    More than ``WORDS_MAX`` characters are not read.

    >>> goal_of("Pick up the red cube and put it in the bin.")
    Goal(relation='in', thing='red cube', target='bin')
    >>> goal_of("press the buttons in the order in which they lit up") is None
    True
    """
    if len(instruction) > WORDS_MAX:
        return None
    words = " ".join(instruction.casefold().split()).strip("\"'“”„").rstrip(" .!…")
    asked = re.match(_POLITE, words)
    words = words[asked.end() :].rstrip("?") if asked else words
    words = _without_trailing(words)
    if _SEVERAL.search(words) or _NEGATED.search(words):
        return None
    for relation, pattern in _PATTERNS:
        if match := re.fullmatch(pattern, words):
            found = match.groupdict()
            thing = found["thing"] or found.get("other") or ""
            return _named(relation, thing, found.get("target") or "")
    return None


def _without_trailing(words: str) -> str:
    while True:
        rest, space, last = words.rpartition(" ")
        if not space or last not in _TRAILING:
            return words
        words = rest.removesuffix(",")


def kind_of(task: str) -> str:
    """Return what is counted together with ``task``, a task's name or the words of a goal.

    Words become the relation that they want, whatever the thing is and however it is said: "in", "pressed". A name, and
    words that no relation says, stay as they are.

    >>> kind_of("drop the red cube in the bin"), kind_of("pick_place")
    ('in', 'pick_place')
    """
    goal = goal_of(task)
    return task if goal is None else goal.relation


def _named(relation: str, thing: str, target: str) -> Goal | None:
    """Return the goal, with "the blue one" named after the thing; None where a word stands for several things."""
    if target.endswith(" one"):
        target = f"{target.removesuffix(' one')} {thing.split()[-1]}"
    if _NO_NAME.search(f"{thing} {target}"):
        return None
    return Goal(relation, thing, target)
