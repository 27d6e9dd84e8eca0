"""Parts of English that several kinds of questions share: openings, articles, relations, plurals."""

from __future__ import annotations

import re
from collections.abc import Iterable

from engram.core.errors import InvalidInputError
from engram.core.words import WORDS_MAX

_RELATIONS = {
    "on top of": "on", "on": "on", "inside": "in", "in": "in", "next to": "near", "near": "near", "beside": "near",
    "by": "near", "close to": "near", "held by": "held_by", "in the hand of": "held_by",
}  # fmt: skip
THING = r"(?:the |a |an |my |your )?"
_RELATION = re.compile(rf"(?:^|\s)(?P<relation>{'|'.join(sorted(_RELATIONS, key=len, reverse=True))})\s+{THING}(?=\w)")
_NO_THING = re.compile(r"[^\w\s'-]")
"""No thing's name has this character."""
_UNREAD = (
    r"\w+n't|cannot|not|no|never|none|nothing|nobody|neither|nor|without",
    r"and|&|or|but|except|excluding|besides|than",
    r"under|underneath|beneath|below|above|over(?= (?!there))|behind|between|among|opposite|against|outside|beyond",
    r"across|around|off|out of|away from|far from|(?:left|right|front|back) of",
    r"(?<!you )ever|always|why|how(?! about)",
)
_IS_UNREAD = re.compile(rf"(?<!\S)(?:{'|'.join(_UNREAD)})(?!\S)")


_OPENINGS = (
    r"what (?:did|do) you (?:think|believe) (?:was|is|were|are)(?: there)?",
    r"where (?:did|do) you (?:think|believe)(?: that)?",
    r"did you (?:think|believe)(?: that)?",
    r"(?:when|where) did you (?:last )?see", r"when was", r"have you seen", r"did you see", r"do you know where",
    r"where(?:'s| is| are| was| were| has| have)", r"what(?:'s| is| are| was| were)(?: there)?",
    r"which objects (?:are|were)",
    r"where", r"find", r"show me", r"(?:is|was|are|were) there(?: a| an| any)?", r"(?:is|was|are|were)",
)  # fmt: skip


def unread_words(words: str) -> tuple[str, ...]:
    """Return what in ``words``, which describe an object, says more than which one it is, and is not understood.

    >>> unread_words("cup and the bowl"), unread_words("cups are not"), unread_words("big red cup")
    (('and',), ('not',), ())
    """
    return tuple(match[0] for match in _IS_UNREAD.finditer(words.replace("\u2019", "'")))


def not_read(said: Iterable[str]) -> InvalidInputError:
    """Return the error that names words that were not understood with what a question is about."""
    named = ", ".join(map(repr, said))
    return InvalidInputError(
        f"{named}: not understood; a question is about one kind of object, as in 'where is the red cup', and at most "
        "one relation of on, in, near, held by, as in 'is the cup on the table'"
    )


def without_opening(words: str) -> str:
    """Return ``words`` without "where is", "did you see" and the like; who holds what becomes a relation."""
    words = _holding(words)
    for opening in _OPENINGS:
        match = re.match(rf"(?:{opening})\b\s*", words)
        if match:
            return words[match.end() :]
    return words


def split_relation(words: str) -> tuple[str, str, str]:
    """Return what is left of ``words``, the relation and what it points at, up to the end of the sentence.

    It takes as long as the words are. More than ``WORDS_MAX`` characters have no relation.
    """
    if len(words) > WORDS_MAX:
        return words, "", ""
    begin = max((other.end() for other in _NO_THING.finditer(words)), default=0)  # behind it all could be a thing
    match = _RELATION.search(words, begin)
    if match is None:
        return words, "", ""
    return words[: match.start()].strip(), _RELATIONS[match["relation"]], words[match.end() :].strip()


def without_articles(words: str) -> str:
    """Return the description in ``words``: without verbs and articles around it, empty for "everything"."""
    words = re.sub(r"^(is|was|were|are|did|the|a|an|my|your|any|some)\b\s*", "", words.strip())
    words = re.sub(r"^(the|a|an)\b\s*", "", words)
    words = re.sub(r"\b(is|was|were|are|be|there|it|that|that (?:is|was)|last seen)$", "", words.strip()).strip()
    return "" if words in ("what", "which", "everything", "anything", "object", "objects", "things") else words


_PLURALS = {
    "knives": "knife", "wives": "wife", "lives": "life", "shelves": "shelf", "bookshelves": "bookshelf",
    "leaves": "leaf", "loaves": "loaf", "halves": "half", "scarves": "scarf", "calves": "calf", "wolves": "wolf",
    "mice": "mouse", "people": "person", "men": "man", "women": "woman", "children": "child", "teeth": "tooth",
    "feet": "foot", "buses": "bus", "lenses": "lens", "axes": "axe",
    "tomatoes": "tomato", "potatoes": "potato", "mangoes": "mango",
    **{f"{one}s": one for one in ("cookie", "pie", "tie", "movie", "brownie", "smoothie", "hoodie", "shoe", "toe")},
}  # fmt: skip
"""Plurals that no rule below forms, or more than one."""
_SINGULARS = {one: many for many, one in _PLURALS.items()}


def singulars(text: str) -> list[str]:
    """Return what ``text`` may be in the singular, the likeliest last: first as it is.

    >>> singulars("red boxes"), singulars("knives"), singulars("cup")
    (['red boxes', 'red boxe', 'red box'], ['knives', 'knive', 'knife'], ['cup'])
    """
    found, (before, space, word) = [text], text.rpartition(" ")
    if text.endswith("s") and not text.endswith("ss"):
        found.append(text[:-1])
    if word in _PLURALS:
        found.append(f"{before}{space}{_PLURALS[word]}")
    elif text.endswith("ies"):
        found.append(f"{text[:-3]}y")
    elif text.endswith(("sses", "xes", "ches", "shes", "oes")):
        found.append(text[:-2])
    elif text.endswith(("ses", "zes")):
        found.insert(1, text[:-2])
    return list(dict.fromkeys(found))


def plural(text: str) -> str:
    """Return ``text``, which is in the singular, in the plural.

    >>> plural("red box"), plural("knife"), plural("cup"), plural("scissors")
    ('red boxes', 'knives', 'cups', 'scissors')
    """
    before, space, word = text.rpartition(" ")
    if word in _SINGULARS:
        return f"{before}{space}{_SINGULARS[word]}"
    if text.endswith(("ss", "x", "z", "ch", "sh")):
        return f"{text}es"
    return text if text.endswith("s") else f"{text[:-1]}ies" if re.search(r"[^aeiou]y$", text) else f"{text}s"


def _holding(words: str) -> str:
    """Rewrite "what is the robot holding" as "what is held by robot"."""
    words = re.sub(r"\b(?:is|was|were) (?:the )?(?:robot|hand|you) holding\b", "held by robot", words)
    words = re.sub(r"^(?:the )?(?:robot|hand) holding\b", "held by robot", words)
    words = re.sub(r"^what (?:did|does|do) (?:the )?(?:robot|hand|you) hold\b", "held by robot", words)
    return re.sub(r"^(?:what (?:did|does|do) )?(\S+) (?:hold|holding)\b", r"held by \1", words)
