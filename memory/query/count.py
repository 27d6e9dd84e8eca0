"""Count: "how many cups are on the table"."""

from __future__ import annotations

import re
from dataclasses import replace

from engram.core.contracts import MemoryAnswer
from engram.core.questions import Count
from engram.memory.query.assemble import assembled
from engram.memory.query.context import QueryContext
from engram.memory.query.grammar import plural, singulars, split_relation
from engram.memory.query.hits import Hits
from engram.memory.query.names import is_known_label, names
from engram.memory.query.phrases import named
from engram.memory.query.registry import register
from engram.memory.query.relation import complete, emptiness

_MOST = 1000
"""More objects than this are not counted."""


def answer_count(question: Count, context: QueryContext) -> MemoryAnswer:
    """Count the objects that are believed to be there and whose label has all the words."""
    history = context.tracker.history
    known = [text for text in singulars(question.text) if is_known_label(context.tracker.columns, history, text)]
    text = known[0] if known else singulars(question.text)[-1]
    selection = replace(context.selection(replace(question, text="")), text=text, limit=_MOST)
    there, unsure = _there(context.search(selection), text) if known or not text else (Hits(), Hits())
    confidence = min(there.confidence, default=_none_confidence(question, context)) * complete(unsure)
    words = _sentence(question, text, context, there) + _beside(question, context, there, unsure)
    found = assembled(question, context, there, words, confidence)
    return replace(
        found, nodes=found.nodes[: question.limit], scores=found.scores[: question.limit],
        evidence=found.evidence[: question.limit],
    )  # fmt: skip


def _there(hits: Hits, text: str) -> tuple[Hits, Hits]:
    """Return the objects among ``hits`` that are called so: those believed to be there, and those that may be."""
    keep = [
        i for i, node in enumerate(hits.nodes)
        if node.layer == "object" and node.state != "absent" and names(text, node.label)
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
    return Count("" if text in ("objects", "things", "items") else text, relation, target)


register(Count, answer_count, _rule)
