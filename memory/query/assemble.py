"""The common end of every handler: evidence, age and advice beside the sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engram.core.contracts import MemoryAnswer
from engram.core.questions import Question
from engram.core.types import Advice, Evidence, SceneNode
from engram.memory.query.advice import advise
from engram.memory.query.context import QueryContext
from engram.memory.query.hits import Hits
from engram.memory.query.locations import options, own_place
from engram.memory.query.phrases import stamp
from engram.memory.storage.fact_columns import FOREVER, Fact


def assembled(question: Question, context: QueryContext, hits: Hits, text: str, confidence: float) -> MemoryAnswer:
    """Return the answer ``text``, which is right with the chance ``confidence``, with what it rests on."""
    about_ns = context.about_ns(question)
    evidence = tuple(_evidence(node, fact, score)
                     for node, fact, score in zip(hits.nodes, hits.facts, hits.scores, strict=True))  # fmt: skip
    age_s = max(0, about_ns - hits.nodes[0].last_seen_ns) / 1e9 if hits.nodes else float("inf")
    return MemoryAnswer(hits.nodes, hits.scores, text, confidence, age_s, evidence)


def search_advice(question: Question, context: QueryContext, hits: Hits, confidence: float) -> Advice | None:
    """Return whether and where looking is worth it; None = the present is sure enough, or the question is past.

    The way begins at ``robot_place`` of the question, else where the robot whose memory this is stands, if it drives.
    """
    config = context.advice
    if context.is_past or (confidence >= config.sure and question.robot_place is None):
        return None
    habits = context.usual(hits.nodes[0]) if context.usual is not None and hits.nodes else ()
    where = options(context.tracker, hits, context.now_ns(question), habits)
    here = own_place(context.tracker) if question.robot_place is None else question.robot_place
    return advise(where, here, config)


def with_evidence(found: MemoryAnswer, more: Sequence[Evidence]) -> MemoryAnswer:
    """Return ``found`` with the evidence of other stores."""
    evidence = sorted((*found.evidence, *more), key=lambda one: -one.score)
    text = found.text
    if not found.nodes and more:
        text = f"{text} But I remember: {evidence[0].text}"
    return replace(found, text=text, evidence=tuple(evidence))


def _evidence(node: SceneNode, fact: Fact | None, score: float) -> Evidence:
    ids = tuple(dict.fromkeys(i for i in (node.last_evidence, node.first_evidence) if i))
    source = "graph"
    text = f"{node.label} {node.state} at {stamp(node.last_seen_ns)}"
    if fact is not None:
        end = "" if fact.valid_to == FOREVER else f" until {stamp(fact.valid_to)}"
        state = "at its place" if fact.present else "gone from its place"
        text = f"{fact.label} {state} from {stamp(fact.valid_from)}{end}, seen {fact.sights} times"
        ids = fact.evidence or ids
        source = "history"
    return Evidence(source, text, min(1.0, score), node.last_seen_ns, ids, node.id, node.pose.position)
