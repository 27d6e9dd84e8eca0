"""Attribute: "is the cup red", "what colour is the cup"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from engram.core.contracts import MemoryAnswer
from engram.core.questions import Attribute, FindObject
from engram.core.types import SceneNode
from engram.memory.graph.completion import is_default_color
from engram.memory.query.assemble import assembled
from engram.memory.query.context import QueryContext
from engram.memory.query.find_object import sentence, was_never_sure
from engram.memory.query.grammar import split_relation, without_articles
from engram.memory.query.hits import Hits
from engram.memory.query.names import is_known_label, names
from engram.memory.query.phrases import listed, whereabouts, within
from engram.memory.query.registry import register
from engram.perception.color import color_name

COLORS: tuple[str, ...] = (
    "red", "orange", "yellow", "green", "cyan", "blue", "purple", "magenta", "pink", "brown", "black", "white", "gray",
)  # fmt: skip
"""Values that the memory knows of an object: by its label, else by the colour that was measured."""
_LOOKS_LIKE: Mapping[str, tuple[str, ...]] = {"brown": ("orange",), "magenta": ("pink", "purple")}
"""What perception calls the colours that it has no name for: brown is dark orange, as is orange in shadow."""
_UNKNOWN: tuple[str, ...] = (
    "open", "closed", "shut", "full", "empty", "clean", "dirty", "hot", "cold", "warm", "wet", "dry", "broken", "heavy",
    "light", "on fire", "locked", "unlocked",
)  # fmt: skip
"""Values that people ask for and that nothing here perceives: the answer says so."""


def answer_attribute(question: Attribute, context: QueryContext) -> MemoryAnswer:
    """Say which colour the object has, and whether that is the one in the question: "the cup on the tray"."""
    selection, text = context.selection(question), question.text
    if not is_known_label(context.tracker.columns, context.tracker.history, text):
        rest, relation, target = split_relation(text)
        if rest and relation:
            text = rest
            selection = replace(selection, text=rest, vector=None, relation=relation, target=target)
    hits = _called(context.search(selection), text)
    if not hits.nodes:
        text = sentence(FindObject(question.text, now_ns=question.now_ns), context, hits)
        return assembled(question, context, hits, text, 0.0)
    if question.value and question.value not in COLORS:
        known = "I remember where things are, their names and their colours"
        text = f"I do not know whether the {hits.nodes[0].label} is {question.value}: {known}."
        return assembled(question, context, hits, text, 0.0)
    fits = [i for i, node in enumerate(hits.nodes) if question.value in ("", color_of(node))]
    alike = [i for i, node in enumerate(hits.nodes) if color_of(node) in _LOOKS_LIKE.get(question.value, ())]
    hits = _first(hits, (*fits, *alike, 0)[0])
    if alike and not fits:
        return assembled(question, context, hits, _cannot_tell(question, context, hits), 0.0)
    confidence = hits.confidence[0] if color_of(hits.nodes[0]) else 0.0
    return assembled(question, context, hits, _sentence(question, context, hits, bool(fits)), confidence)


def color_of(node: SceneNode) -> str:
    """Return the colour in the label of ``node``, else the one that was measured; empty = neither."""
    said = [word for word in node.label.split() if word in COLORS]
    if said:
        return said[0]
    return "" if is_default_color(node.color) else color_name(node.color)


def _sentence(question: Attribute, context: QueryContext, hits: Hits, fits: bool) -> str:
    node, be = hits.nodes[0], "was" if context.is_past else "is"
    color = color_of(node)
    if not color:
        return f"I do not know the colour of the {node.label}: the detector that saw it reports none."
    others = [f"a {color_of(other) or 'colourless'} one" for other in hits.nodes[1:] if color_of(other) != color]
    beside = f" I also know of {listed(list(dict.fromkeys(others)))}." if others else ""
    where = _where(question, context, hits)
    if not hits.is_believed(0) and was_never_sure(context, node):
        return f"{where} It looked {color}.{beside}"
    verdict = "" if not question.value else "Yes: " if fits else "No: "
    text = f"{verdict}the {question.text} {be} {color}; {within(where)}{beside}"
    return text[0].upper() + text[1:]


def _cannot_tell(question: Attribute, context: QueryContext, hits: Hits) -> str:
    """Say that the colour asked for cannot be told from the one that the object is taken to have."""
    color, be = color_of(hits.nodes[0]), "was" if context.is_past else "is"
    told = (
        f"I do not know whether the {question.text} {be} {question.value}: I cannot tell {question.value} from {color}"
    )
    return f"{told}. {_where(question, context, hits)}"


def _where(question: Attribute, context: QueryContext, hits: Hits) -> str:
    """Say where the first of ``hits`` is."""
    if hits.is_believed(0):
        be = "was" if context.is_past else "is"
        return f"It {be} {whereabouts(context.tracker, hits.nodes[0], hits.facts[0])}."
    return sentence(FindObject(question.text, now_ns=question.now_ns), context, hits)


def _called(hits: Hits, text: str) -> Hits:
    """Return those whose label has all the words, of these those believed to be there, if there are any."""
    named = [i for i, node in enumerate(hits.nodes) if names(text, node.label)] or range(len(hits.nodes))
    return hits.chosen([i for i in named if hits.is_believed(i)] or named)


def _first(hits: Hits, i: int) -> Hits:
    """Return ``hits`` with number ``i`` first."""
    return hits.chosen([i, *(j for j in range(len(hits.nodes)) if j != i)])


_IS_IT = re.compile(
    rf"^(?:is|are|was|were) (?:the|my|your|that) (?P<text>.+) (?P<value>{'|'.join(COLORS + _UNKNOWN)}|grey)$"
)
_WHICH = re.compile(r"^(?:what|which) colou?r (?:is|are|was|were|does|has|did) (?P<text>.+?)(?: have| has)?$")


def _rule(words: str) -> Attribute | None:
    match = _IS_IT.match(words)
    if match is not None:
        return Attribute(without_articles(match["text"]), match["value"].replace("grey", "gray"))
    match = _WHICH.match(words)
    return None if match is None else Attribute(without_articles(match["text"]))


register(Attribute, answer_attribute, _rule)
