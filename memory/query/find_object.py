"""FindObject: "where is the red cup", "what is there"."""

from __future__ import annotations

from dataclasses import replace

from engram.core.contracts import MemoryAnswer
from engram.core.questions import FindObject
from engram.core.types import SceneNode
from engram.memory.query.assemble import assembled, search_advice
from engram.memory.query.context import QueryContext
from engram.memory.query.grammar import without_articles, without_opening
from engram.memory.query.hits import Hits
from engram.memory.query.phrases import age, name, whereabouts
from engram.memory.query.registry import register
from engram.memory.storage.fact_columns import FOREVER, Fact

SEEN_NOW_NS = 5_000_000_000
"""An object that was visible this short a time ago is seen now."""
_MAYBE = 0.5
"""Below this confidence the answer is where it was, not where it is."""


def answer_find(question: FindObject, context: QueryContext) -> MemoryAnswer:
    """Answer with the node that fits best."""
    hits = context.search(context.selection(question))
    return answer_from(question, context, hits)


def answer_from(question: FindObject, context: QueryContext, hits: Hits) -> MemoryAnswer:
    """Answer where the first of ``hits`` is."""
    confidence = hits.confidence[0] if hits.nodes else 0.0
    found = assembled(question, context, hits, sentence(question, context, hits), confidence)
    if not question.text:
        return found
    return replace(found, advice=search_advice(question, context, hits, confidence))


def sentence(question: FindObject, context: QueryContext, hits: Hits) -> str:
    """Say where the first of ``hits`` is or was."""
    if not hits.nodes:
        what = f"nothing like {question.text!r}" if question.text else "nothing there"
        return f"I know of {what}{' at that time' if context.is_past else ''}."
    node, fact, confidence = hits.nodes[0], hits.facts[0], hits.confidence[0]
    about_ns = context.about_ns(question)
    sure = hits.is_believed(0)
    if context.is_past:
        return _past(context, node, fact, confidence, about_ns, sure)
    if node.layer == "agent":
        return _robot(context, node, fact, about_ns)
    return _present(context, node, fact, confidence, about_ns, sure)


def was_never_sure(context: QueryContext, node: SceneNode) -> bool:
    """Whether ``node`` was never seen often enough to be believed, as far as the memory knew: maybe it never was."""
    believed_ns = FOREVER - 1 if context.believed_ns is None else context.believed_ns
    return node.layer == "object" and not context.tracker.history.ever_sure([node.id], believed_ns)[node.id]


def _past(
    context: QueryContext, node: SceneNode, fact: Fact | None, confidence: float, about_ns: int, sure: bool
) -> str:
    where, unseen = whereabouts(context.tracker, node, fact), age(about_ns - node.last_seen_ns)
    if not sure and was_never_sure(context, node):
        return f"I may have seen the {node.label} {where}; I {'was' if context.believed_ns else 'am'} not sure."
    if context.believed_ns is not None:
        thought = "thought" if sure else "was not sure that"
        return f"I {thought} the {node.label} was {where}; last seen {unseen} before."
    if node.state == "absent":
        return f"The {node.label} was not where I had seen it, {where}; I do not know where it was."
    seen = "I saw it there" if node.state == "visible" else f"last seen {unseen} before"
    return f"{name(node)} was {where}; {seen}; confidence {confidence:.2f}."


def _present(
    context: QueryContext, node: SceneNode, fact: Fact | None, confidence: float, now_ns: int, sure: bool
) -> str:
    where, unseen_ns = whereabouts(context.tracker, node, fact), now_ns - node.last_seen_ns
    seen_now = node.state == "visible" and unseen_ns <= SEEN_NOW_NS
    if not sure and (seen_now or was_never_sure(context, node)):
        return f"I may have seen the {node.label} {age(unseen_ns)} ago {where}; I am not sure."
    if node.state == "absent":
        return f"The {node.label} is gone; I saw it {age(unseen_ns)} ago {where}."
    if seen_now:
        return f"The {node.label} is {where}; I see it."
    if confidence < _MAYBE:
        return f"I last saw the {node.label} {age(unseen_ns)} ago {where}; it may be somewhere else by now."
    hidden = ", hidden behind something" if node.state == "occluded" else ""
    return f"The {node.label} is {where}; last seen {age(unseen_ns)} ago{hidden}."


def _robot(context: QueryContext, node: SceneNode, fact: Fact | None, now_ns: int) -> str:
    """Say where a robot is and what it holds."""
    tracker = context.tracker
    if node.belief == 0:
        return f"I do not know where {node.label} is."
    known = tracker.columns.row_of.get(tracker.grasps.held(node.label) or "")
    holds = "" if known is None else f"; it holds the {tracker.columns.about(known).label}"
    heard = age(now_ns - node.last_seen_ns)
    return f"{node.label} is {whereabouts(tracker, node, fact)}; last heard of {heard} ago{holds}."


def _rule(words: str) -> FindObject:
    """Any words that no other rule takes describe an object."""
    return FindObject(without_articles(without_opening(words)))


register(FindObject, answer_find, _rule, priority=0)
