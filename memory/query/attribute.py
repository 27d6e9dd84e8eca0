"""Attribute: "is the cup red", "what colour is the cup"."""

from __future__ import annotations

import re

from engram.core.contracts import MemoryAnswer
from engram.core.questions import Attribute, FindObject
from engram.core.types import SceneNode
from engram.memory.graph.completion import is_default_color
from engram.memory.query.assemble import assembled
from engram.memory.query.context import QueryContext
from engram.memory.query.find_object import sentence
from engram.memory.query.grammar import without_articles
from engram.memory.query.hits import Hits
from engram.memory.query.names import names
from engram.memory.query.phrases import listed, whereabouts
from engram.memory.query.registry import register
from engram.perception.color import color_name

COLORS: tuple[str, ...] = (
    "red", "orange", "yellow", "green", "cyan", "blue", "purple", "magenta", "pink", "brown", "black", "white", "gray",
)  # fmt: skip
"""Values that the memory knows of an object: by its label, else by the colour that was measured."""
_UNKNOWN: tuple[str, ...] = (
    "open", "closed", "shut", "full", "empty", "clean", "dirty", "hot", "cold", "warm", "wet", "dry", "broken", "heavy",
    "light", "on fire", "locked", "unlocked",
)  # fmt: skip
"""Values that people ask for and that nothing here perceives: the answer says so."""


def answer_attribute(question: Attribute, context: QueryContext) -> MemoryAnswer:
    """Say which colour the object has, and whether that is the one in the question."""
    hits = context.search(context.selection(question))
    hits = _called(hits, question.text)
    if not hits.nodes:
        text = sentence(FindObject(question.text, now_ns=question.now_ns), context, hits)
        return assembled(question, context, hits, text, 0.0)
    if question.value and question.value not in COLORS:
        known = "I remember where things are, their names and their colours"
        text = f"I do not know whether the {hits.nodes[0].label} is {question.value}: {known}."
        return assembled(question, context, hits, text, 0.0)
    fits = [i for i, node in enumerate(hits.nodes) if question.value in ("", color_of(node))]
    first = fits[0] if fits else 0
    hits = _first(hits, first)
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
    where = f"it {be} {whereabouts(context.tracker, node, hits.facts[0])}"
    verdict = "" if not question.value else "Yes: " if fits else "No: "
    text = f"{verdict}the {question.text} {be} {color}; {where}.{beside}"
    return text[0].upper() + text[1:]


def _called(hits: Hits, text: str) -> Hits:
    """Return those whose label has all the words, if there are any."""
    keep = [i for i, node in enumerate(hits.nodes) if names(text, node.label)]
    return hits.chosen(keep) if keep else hits


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
