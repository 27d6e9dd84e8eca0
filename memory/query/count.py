"""Count: "how many cups are on the table"."""

from __future__ import annotations

import re
from dataclasses import replace

from engram.core.contracts import MemoryAnswer
from engram.core.questions import Count
from engram.memory.query.assemble import assembled
from engram.memory.query.attribute import COLORS, color_of
from engram.memory.query.context import QueryContext
from engram.memory.query.grammar import not_read, plural, singulars, split_relation
from engram.memory.query.hits import Hits
from engram.memory.query.names import is_known_label, names
from engram.memory.query.phrases import named
from engram.memory.query.registry import register
from engram.memory.query.relation import complete, emptiness, indirect

_MOST = 1000
"""More objects than this are not counted."""
_ANY = ("object", "thing", "item", "one")
"""Words for an object of any kind."""


def answer_count(question: Count, context: QueryContext) -> MemoryAnswer:
    """Count the objects that are believed to be there and whose label has all the words.

    Without any, the colour is read that the words say, and what stands there by way of something else: on a tray on the
    table.

    Raises:
        InvalidInputError: the question has words that describe no object that is known, as "how many cups fell".
    """
    known = [text for text in singulars(question.text) if _is_known(text, context)]
    text = known[0] if known else singulars(question.text)[-1]
    color, kind = _colored(text)
    if not known:
        _check_read(question.text, kind, context)
    selection = replace(context.selection(replace(question, text="")), limit=_MOST)
    meant = [(text, "")] if known or not text else []  # words of the label, and a colour that need not be in it
    meant += [(kind, color)] if color and (not kind or _is_known(kind, context)) else []
    there, unsure = Hits(), Hits()
    for words, seen in meant:
        if not there.nodes and not unsure.nodes:
            there, unsure = _there(context.search(replace(selection, text=words)), words, seen)
    for words, seen in meant if text else ():
        if not there.nodes and not unsure.nodes:
            there, unsure = _there(indirect(question, context, selection, words)[0], words, seen)
    confidence = min(there.confidence, default=_none_confidence(question, context)) * complete(unsure)
    told = _sentence(question, text, context, there) + _beside(question, context, there, unsure)
    found = assembled(question, context, there, told, confidence)
    return replace(
        found, nodes=found.nodes[: question.limit], scores=found.scores[: question.limit],
        evidence=found.evidence[: question.limit],
    )  # fmt: skip


def _is_known(text: str, context: QueryContext) -> bool:
    return is_known_label(context.tracker.columns, context.tracker.history, text)


def _colored(text: str) -> tuple[str, str]:
    """Return the colour that ``text``, in the singular, says, and what it says beside: "red cup", "red thing".

    Empty: it says none, or several.
    """
    words = text.replace("grey", "gray").split()
    rest = words[:-1] if words and words[-1] in _ANY else words
    colors = {word for word in (rest if rest != words else rest[:-1]) if word in COLORS}  # an orange is no colour
    return (next(iter(colors)) if len(colors) == 1 else ""), " ".join(word for word in rest if word not in colors)


def _check_read(text: str, kind: str, context: QueryContext) -> None:
    """Raise InvalidInputError if ``text``, no name that is known, has words that describe no object.

    These are what follows a plural, as in "cups fell", and what things without a name shall be, if it is no colour.
    """
    words = text.split()
    for i in range(1, len(words)):
        one = singulars(" ".join(words[:i]))[-1]
        if one.split()[-1] != words[i - 1] and (one.split()[-1] in _ANY or _is_known(one, context)):
            raise not_read(words[i:])
    if words and singulars(words[-1])[-1] in _ANY and kind and not _is_known(kind, context):
        raise not_read(kind.split())


def _there(hits: Hits, text: str, color: str) -> tuple[Hits, Hits]:
    """Return the objects among ``hits`` that are called so: those believed to be there, and those that may be.

    ``color``: only what looks like that; empty = all.
    """
    keep = [
        i for i, node in enumerate(hits.nodes)
        if node.layer == "object" and node.state != "absent" and names(text, node.label)
        and color in ("", color_of(node))
    ]  # fmt: skip
    keep.sort(key=lambda i: hits.nodes[i].label)
    unsure = [i for i in keep if not hits.is_told(i)]
    return hits.chosen([i for i in keep if hits.is_told(i)]), hits.chosen(unsure)


def _none_confidence(question: Count, context: QueryContext) -> float:
    """Return how sure "none" is: only of a place that was looked at does the memory know that."""
    return emptiness(question.relation, question.target, context) if question.target and not context.is_past else 0.0


def _sentence(question: Count, text: str, context: QueryContext, hits: Hits) -> str:
    where = f" {question.relation.replace('_', ' ')} the {question.target}" if question.target else ""
    count, kind = len(hits.nodes), text or "object"
    knew = "I knew of" if context.is_past else "I know of"
    then = " at that time" if context.is_past else ""
    if not count:
        return f"{knew} no {kind}{where}{then}."
    if count == 1:
        return f"{knew} 1 {kind}{where}{then}: the {hits.nodes[0].label}."
    kinds = question.text if question.text != text else plural(kind)
    return f"{knew} {count} {kinds}{where}{then}: {named(hits.nodes, question.limit, count)}."


def _beside(question: Count, context: QueryContext, there: Hits, unsure: Hits) -> str:
    """Say what else there may be."""
    if not unsure.nodes:
        return ""
    count, more = len(unsure.nodes), " more" if there.nodes else ""
    may = "There may have been" if context.is_past else "I may have seen"
    return f" {may} {count}{more}: {named(unsure.nodes, question.limit, count)}."


_QUESTION = re.compile(r"^(?:how many|count(?: all)?(?: the)?|(?:what is )?the number of) (?P<what>.+)$")
_TAIL = re.compile(
    r"\s*\b(?:(?:are|is|were|was|do|did|have|has)(?: there| you)?(?: know(?: of)?| see| seen)?|there|left)$"
)


def _rule(words: str) -> Count | None:
    match = _QUESTION.match(words)
    if match is None:
        return None
    rest, relation, target = split_relation(match["what"])
    text = _TAIL.sub("", rest).strip()
    text = re.sub(r"^(?:the|of the) ", "", text)
    text = re.sub(rf"^(.+) (?:are|is|were|was) ({'|'.join(COLORS)}|grey)$", r"\2 \1", text)
    return Count("" if text in ("objects", "things", "items") else text, relation, target)


register(Count, answer_count, _rule)
