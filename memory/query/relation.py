"""Relation: "what is in the drawer", "is the cup on the table", "what is the robot holding"."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from engram.core.contracts import MemoryAnswer
from engram.core.questions import Count, FindObject, Relation, Selection
from engram.memory.graph.containment import deep
from engram.memory.query.assemble import assembled, search_advice
from engram.memory.query.context import QueryContext
from engram.memory.query.find_object import answer_from, sentence
from engram.memory.query.grammar import split_relation, without_articles, without_opening
from engram.memory.query.hits import Hits
from engram.memory.query.names import anchors, is_known_label, names
from engram.memory.query.phrases import named, support, within
from engram.memory.query.registry import register
from engram.memory.query.temporal import chances
from engram.memory.storage.fact_columns import Fact

_CARRIES = ("on", "in")
_MOST = 1000
"""More objects of a name than this are not looked through."""
EMPTY_CONFIDENCE = 0.5
"""How sure "nothing is there" is after a look: an object can be missed, or put there later."""


def answer_relation(question: Relation, context: QueryContext) -> MemoryAnswer:
    """List what stands in the relation, or say whether an object does."""
    selection = context.selection(question)
    hits = context.search(selection)
    if not question.text:
        return _contents(question, context, hits)
    about = FindObject(
        question.text, place=question.place, radius_m=question.radius_m, limit=question.limit,
        now_ns=question.now_ns, robot_place=question.robot_place,
    )  # fmt: skip
    if is_known_label(context.tracker.columns, context.tracker.history, question.text):
        hits = hits.chosen([i for i, node in enumerate(hits.nodes) if names(question.text, node.label)])
    if hits.nodes:
        return answer_from(about, context, hits)
    carried, links = indirect(question, context, replace(selection, limit=_MOST), question.text)
    if carried.nodes:
        found = answer_from(about, context, carried.chosen(range(min(question.limit, len(carried.nodes)))))
        return replace(found, text=f"{found.text} {_chain(links[0], context)}")
    elsewhere = context.search(replace(selection, relation="", target=""))
    return _denied(question, about, context, elsewhere)


def indirect(
    question: Relation | Count, context: QueryContext, selection: Selection, text: str
) -> tuple[Hits, list[list[Fact]]]:
    """Return the objects called ``text`` that stand in the relation by way of others, best first: a spoon on a tray on
    the table is on the table.

    Returns:
        What is believed, each with the chance that what carries it is there; and for each what its carriers stand on or
        in, the lowest last.
    """
    if question.relation not in _CARRIES or not question.target:
        return Hits(), []
    hits = context.search(replace(selection, text=text, relation="", target=""))
    targets = set(anchors(context.tracker, question.target, selection if context.is_past else None))
    order, links, sure = list[int](), list[list[Fact]](), list(hits.confidence)
    for i, (node, fact) in enumerate(zip(hits.nodes, hits.facts, strict=True)):
        if node.state == "absent" or not hits.is_believed(i) or not names(text, node.label):
            continue
        below = _carriers(fact, targets, context)
        if below and below[-1].relation == question.relation:
            order.append(i)
            links.append(below)
            rows = np.array([one.row for one in below])
            asked = replace(selection, valid_ns=context.valid_ns or (context.now_ns(question),) * 2)
            sure[i] *= float(np.prod(chances(context.tracker, rows, asked, context.retrieval)))
    return replace(hits, confidence=tuple(sure)).chosen(order), links


def _carriers(fact: Fact | None, targets: Collection[str], context: QueryContext) -> list[Fact]:
    """Return the facts of what carries the object of ``fact``, up to the one that stands on or in ``targets``."""
    history, found, seen = context.tracker.history, list[Fact](), set[str]()
    while fact is not None and fact.relation in _CARRIES and fact.target not in targets and fact.target not in seen:
        seen.add(fact.target)
        rows = history.select(context.valid_ns, context.believed_ns, [fact.target])
        there = [one for one in history.facts(rows) if one.present]
        fact = max(there, key=lambda one: (one.valid_from, one.believed_from), default=None)
        if fact is not None:
            found.append(fact)
    return found if fact is not None and fact.relation in _CARRIES and fact.target in targets else []


def _chain(links: Sequence[Fact], context: QueryContext) -> str:
    """Say where what carries an object stands: "The tray is on the table."."""
    be = "was" if context.is_past else "is"
    text = "; ".join(f"the {one.label} {be} {support(context.tracker, one)}" for one in links)
    return f"{text[0].upper()}{text[1:]}."


def _contents(question: Relation, context: QueryContext, hits: Hits) -> MemoryAnswer:
    """List the objects that are believed to stand in the relation, and say which others may."""
    there = hits.chosen([i for i in range(len(hits.nodes)) if hits.is_told(i)])
    maybe = [i for i, node in enumerate(hits.nodes) if not hits.is_told(i) and node.state != "absent"]
    unsure = hits.chosen(maybe)
    empty = emptiness(question.relation, question.target, context)
    text = _list(question, context, there, unsure, hits.total)
    return assembled(question, context, there, text, min(there.confidence, default=empty) * complete(unsure))


def complete(unsure: Hits) -> float:
    """Return the chance that none of the objects that ``unsure`` left out is there."""
    return math.prod(1.0 - one for one in unsure.confidence)


def _denied(question: Relation, about: FindObject, context: QueryContext, elsewhere: Hits) -> MemoryAnswer:
    """Say that the object is not there, and where it is if that is known; no node fits the question."""
    known = bool(elsewhere.nodes) and names(question.text, elsewhere.nodes[0].label)
    text = sentence(about, context, elsewhere if known else Hits())
    confidence = elsewhere.confidence[0] if known else 0.0
    found = assembled(about, context, Hits(), f"No: {within(text)}" if known else text, confidence)
    return replace(found, advice=search_advice(about, context, elsewhere if known else Hits(), confidence))


def _list(question: Relation, context: QueryContext, there: Hits, unsure: Hits, total: int) -> str:
    """Name what is ``there``, of ``total`` objects, and what may be."""
    be = "was" if context.is_past else "is"
    relation, target = question.relation.replace("_", " "), question.target or "there"
    think = "I thought that " if context.believed_ns is not None else ""
    unsure_of = "but I was not sure" if context.believed_ns is not None else "but I am not sure"
    may = f"{named(unsure.nodes, len(unsure.nodes), 0)} may {'have been' if context.is_past else 'be'}"
    if there.nodes:
        verb = be if total == 1 else {"is": "are", "was": "were"}[be]
        also = f"; {may}, {unsure_of}" if unsure.nodes else ""
        text = f"{think}{named(there.nodes, len(there.nodes), total)} {verb} {relation} the {target}{also}."
    elif unsure.nodes:
        text = f"{think}{may} {relation} the {target}, {unsure_of}."
    elif not context.is_past and last_look(question.relation, question.target, context) is None:
        if question.relation == "in":
            return f"I do not know: I have never looked into the {target}."
        return f"I do not know: no camera has shown me all of the {target}."
    else:
        text = f"{think}nothing {be} {relation} the {target}."
    return text[0].upper() + text[1:]


def last_look(relation: str, target: str, context: QueryContext) -> int | None:
    """Return when the target's box was last looked at [ns]; None = never."""
    tracker, columns = context.tracker, context.tracker.columns
    looks = []
    for row in [columns.row_of[node_id] for node_id in anchors(tracker, target)] if target else ():
        if row in columns.agents:
            return tracker.stamp_ns
        if relation == "in" and len(deep(columns, np.array([row]))):
            looks.append(tracker.coverage.into.get(columns.about(row).id))
            continue
        half = columns.half[row] + (0.05 if relation != "in" else 0.0)
        looks.append(tracker.coverage.last_look(columns.position[row] - half, columns.position[row] + half))
    return max((look for look in looks if look is not None), default=None)


def emptiness(relation: str, target: str, context: QueryContext) -> float:
    """Return how sure it is that nothing stands in ``relation`` to ``target``."""
    return 0.0 if last_look(relation, target, context) is None else EMPTY_CONFIDENCE


def _rule(words: str) -> Relation | None:
    rest, relation, target = split_relation(without_opening(words))
    return Relation(relation, target, without_articles(rest)) if relation else None


register(Relation, answer_relation, _rule, priority=1)
