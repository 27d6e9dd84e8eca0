"""Changes: "what changed in the last 10 minutes", "what moved during the last task", "what is new", "what is gone"."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engram.core.contracts import MemoryAnswer
from engram.core.questions import Changes, Interval, Selection
from engram.core.types import Evidence, GraphEvent, SceneNode
from engram.memory.graph.surroundings import VERBS, describe
from engram.memory.query.context import QueryContext
from engram.memory.query.grammar import THING, singulars
from engram.memory.query.names import is_known_label, names
from engram.memory.query.phrases import age
from engram.memory.query.registry import register
from engram.memory.query.relation import EMPTY_CONFIDENCE
from engram.memory.query.tasks import spanned
from engram.memory.query.temporal import chances, nodes_then
from engram.memory.storage.columns import AGENT
from engram.memory.storage.fact_columns import FOREVER, Fact
from engram.memory.stores.short_term.store import Recent

_MEANT: Mapping[str, tuple[str, ...]] = {
    "changed": tuple(VERBS), "moved": ("moved", "held", "released", "returned"),
    "new": ("new", "returned"), "gone": ("absent",),
}  # fmt: skip
"""What is asked for -> the kinds of events that are meant."""
_NOTHING: Mapping[str, str] = {
    "changed": "Nothing changed", "moved": "Nothing moved", "new": "Nothing is new", "gone": "Nothing is gone",
}  # fmt: skip
_NO_STORE = "I keep no recent changes: this memory holds the scene alone; ask about a time."


@dataclass(frozen=True)
class _Change:
    """What happened to an object, of which only the last thing is told whole."""

    node_id: str
    label: str
    kinds: tuple[str, ...]  # of events; the last one last; () = not known
    text: str  # "the red cube moved to the bin"
    stamp_ns: int
    place: np.ndarray  # (3,) m
    chance: float  # 0..1, that it was so
    ids: tuple[str, ...]  # observations
    source: str  # store
    fact: Fact | None = None

    def fits(self, question: Changes) -> bool:
        """Whether ``question`` asks for it. What is gone by now is not new."""
        if question.text and not any(names(text, self.label) for text in singulars(question.text)):
            return False
        last, meant = self.kinds[-1:], _MEANT[question.kind]
        if question.kind in ("new", "gone") and ("absent" in last) != (question.kind == "gone"):
            return False
        return question.kind == "changed" or any(kind in meant for kind in self.kinds)

    def told(self, question: Changes, now_ns: int) -> str:
        """Return it in words: what was asked for, and what came then."""
        text, meant = self.text, [kind for kind in self.kinds if kind in _MEANT[question.kind]]
        if meant and meant[-1] != self.kinds[-1]:
            text = f"the {self.label} {VERBS[meant[-1]]} and then {text.removeprefix(f'the {self.label} ')}"
        return f"{text} {age(now_ns - self.stamp_ns)} ago"


def answer_changes(question: Changes, context: QueryContext) -> MemoryAnswer:
    """Tell what changed, newest first: by the short-term memory, or by the history where that holds too little.

    Without a time it is what the short-term memory holds.
    """
    columns, history = context.tracker.columns, context.tracker.history
    if question.text and not any(is_known_label(columns, history, one) for one in singulars(question.text)):
        return MemoryAnswer((), (), f"I know of nothing like {question.text!r}.")
    span, recent = spanned(context), None if context.recent is None else context.recent()
    if span is None and recent is None:
        return MemoryAnswer((), (), _NO_STORE)
    if recent is not None and span is None:
        found, doubt = _held(recent, span, context), _evicted(recent, question, context)
    elif recent is not None and span is not None and question.kind == "changed" and _holds_all(recent, span):
        found, doubt = _held(recent, span, context), _unseen(span, question, context)
    else:
        assert span is not None
        doubt = _thinned(span, question, context) or _unseen(span, question, context)
        found = _of_history(span, context)
    fits = sorted((one for one in found if one.fits(question)), key=lambda one: (-one.stamp_ns, one.node_id))
    return _answer(question, context, fits, doubt)


def _answer(question: Changes, context: QueryContext, fits: Sequence[_Change], doubt: str) -> MemoryAnswer:
    """Return the changes that are believed, and say which others there may have been, and what may be missing."""
    sure = [one for one in fits if one.chance >= context.tracker.config.sure_belief]
    unsure, shown = [one for one in fits if one not in sure], sure[: question.limit]
    now_ns, more = context.now_ns(question), len(sure) - len(shown)
    parts = [one.told(question, now_ns) for one in shown] + ([f"{more} more"] if more else [])
    nothing = _NOTHING[question.kind] if not question.text else f"I know of no such change of the {question.text}"
    text = "; ".join(parts) if parts else f"{nothing}{' at that time' if context.is_past else ''}"
    if unsure:
        named = ", ".join(dict.fromkeys(f"the {one.label}" for one in unsure))
        text += f"; {named} may have changed, but I am not sure"
    text = f"{text[0].upper()}{text[1:]}.{f' {doubt}' if doubt else ''}"
    none = 0.0 if doubt or not context.tracker.stamp_ns else EMPTY_CONFIDENCE
    confidence = min((one.chance for one in shown), default=none) * math.prod(1.0 - one.chance for one in unsure)
    nodes = _nodes(shown, context)
    chance_of = {one.node_id: one.chance for one in reversed(shown)}
    age_s = max(0, context.about_ns(question) - shown[0].stamp_ns) / 1e9 if shown else float("inf")
    evidence = tuple(
        Evidence(one.source, one.text, min(1.0, one.chance), one.stamp_ns, one.ids, one.node_id, one.place)
        for one in shown
    )
    return MemoryAnswer(nodes, tuple(chance_of[node.id] for node in nodes), text, confidence, age_s, evidence)


def _nodes(shown: Sequence[_Change], context: QueryContext) -> tuple[SceneNode, ...]:
    """Return the objects that changed, each once: as they are, of a change of the past as it left them."""
    columns, first = context.tracker.columns, {one.node_id: one for one in reversed(shown)}
    ordered = [first[node_id] for node_id in dict.fromkeys(one.node_id for one in shown)]
    nodes: list[SceneNode] = []
    for one in ordered:
        if one.fact is not None:
            asked = Selection(valid_ns=(one.stamp_ns, one.stamp_ns))
            nodes += nodes_then(context.tracker, [one.fact], asked, [one.chance])
        elif one.node_id in columns:
            nodes += columns.nodes([columns.row_of[one.node_id]])
    return tuple(nodes)


# -- by the short-term memory ----------------------------------------------------------------------------------------


def _holds_all(recent: Recent, span: Interval) -> bool:
    """Whether every object that changed in ``span`` is held with that change: none went, none changed since."""
    went = recent.dropped_ns is not None and recent.dropped_ns >= span[0]
    return not went and all(one.stamp_ns <= span[1] for one in recent.changes)


def _held(recent: Recent, span: Interval | None, context: QueryContext) -> list[_Change]:
    columns, found = context.tracker.columns, []
    for one in recent.changes:
        row = columns.row_of.get(one.node_id)
        if row is None or (span is not None and one.stamp_ns < span[0]):
            continue
        there = float(columns.belief[row])
        chance = 1.0 - there if one.kinds[-1:] == ("absent",) else there
        ids = (one.evidence,) if one.evidence else ()
        found.append(_Change(one.node_id, one.label, one.kinds, one.text, one.stamp_ns, one.place, chance, ids,
                             "short_term"))  # fmt: skip
    return found


def _evicted(recent: Recent, question: Changes, context: QueryContext) -> str:
    """Say that changes are missing for want of room."""
    if recent.dropped_ns is None:
        return ""
    past = age(context.now_ns(question) - recent.dropped_ns)
    return f"Others, up to {past} ago, had no room in my short-term memory: ask about a time to hear of them."


# -- by the history --------------------------------------------------------------------------------------------------


def _of_history(span: Interval, context: QueryContext) -> list[_Change]:
    """Return what the facts that began in ``span`` changed, for each object the last thing of each kind."""
    tracker = context.tracker
    columns, history = tracker.columns, tracker.history
    rows = history.select(span, context.believed_ns)
    rows = rows[history.valid_from[rows] >= span[0]]
    found: dict[tuple[str, str], _Change] = {}
    for node_id in dict.fromkeys(history.words[number] for number in history.node[rows].tolist()):
        row = columns.row_of.get(node_id)
        if row is not None and columns.layer[row] == AGENT:
            continue
        known = history.known_of(int(history.of(node_id)[0].row), _believed_ns(context))
        facts = sorted(history.facts(known), key=lambda fact: (fact.valid_from, fact.row))
        for before, fact in zip([None, *facts], facts, strict=False):
            kind = _kind(before, fact, tracker.config.fact_m)
            if kind and span[0] <= fact.valid_from <= span[1]:
                found[node_id, kind] = _changed(kind, before, fact, context)
    last: dict[str, _Change] = {}
    for (node_id, _), one in sorted(found.items(), key=lambda item: item[1].stamp_ns):
        last[node_id] = replace(one, kinds=(*(last[node_id].kinds if node_id in last else ()), *one.kinds))
    return list(last.values())


def _kind(before: Fact | None, fact: Fact, same_m: float) -> str:
    """Return what kind of event made ``fact`` of ``before``; empty = none that people mean by a change."""
    if before is None:
        return "new" if fact.present else ""
    if not fact.present:
        return "absent" if before.present else ""
    if not before.present:
        return "returned"
    held = before.relation == "held_by", fact.relation == "held_by"
    if held[0] != held[1]:
        return "held" if held[1] else "released"
    return "moved" if float(np.linalg.norm(fact.place - before.place)) > same_m else ""


def _changed(kind: str, before: Fact | None, fact: Fact, context: QueryContext) -> _Change:
    tracker, at = context.tracker, fact.valid_from
    row = tracker.columns.row_of.get(fact.target)
    event = GraphEvent(kind, fact.node_id, fact.label, at, fact.place, None if before is None else before.place)
    text = describe(event, "" if row is None else tracker.columns.about(row).label)
    asked = Selection(valid_ns=(at, at), believed_ns=context.believed_ns)
    chance = float(chances(tracker, np.array([fact.row]), asked, context.retrieval)[0])
    return _Change(
        fact.node_id, fact.label, (kind,), text, at, fact.place, chance, fact.evidence[:1], "history", fact
    )  # fmt: skip


def _believed_ns(context: QueryContext) -> int:
    return FOREVER - 1 if context.believed_ns is None else context.believed_ns


def _unseen(span: Interval, question: Changes, context: QueryContext) -> str:
    """Say that ``span`` begins before anything was seen; one without a begin, at 0, says nothing."""
    began = context.tracker.history.began_ns()
    if began is not None and not 0 < span[0] < began:
        return ""
    return f"I saw nothing before {'that' if began is None else f'{age(context.now_ns(question) - began)} ago'}."


def _thinned(span: Interval, question: Changes, context: QueryContext) -> str:
    """Say that the history of ``span`` was thinned for want of room."""
    thinned_ns = context.tracker.history.thinned_ns
    if thinned_ns is None or thinned_ns < span[0]:
        return ""
    past = age(context.now_ns(question) - thinned_ns)
    return f"The history of before {past} ago was thinned: changes may be missing."


# -- the sentences that ask ------------------------------------------------------------------------------------------

_WHAT = r"(?:what(?:'s)?|which (?:objects|things)|has anything|did anything|is anything)"
_DID = r"(?: has| have| is| are| was| were| had| did| went)?(?: been)?"
_WHOLE = (
    (rf"{_WHAT}{_DID} changed?(?: here| there)?", "changed"),
    (r"what (?:are|were) the (?:last |latest |newest |recent )?changes", "changed"),
    (r"what changes (?:were there|are there|happened|have there been|did you (?:see|notice)|do you know)", "changed"),
    (rf"{_WHAT}{_DID} moved?", "moved"),
    (rf"{_WHAT}{_DID} (?:new|appeared?|added|arrived?)(?: here| there)?", "new"),
    (rf"{_WHAT}{_DID} (?:gone|missing|away|disappeared|vanished|removed|taken away)(?: here| there)?", "gone"),
)  # fmt: skip
_CHANGED = r"(?:moved?|changed?|appear(?:ed)?|disappear(?:ed)?)"
_OF = (
    (rf"what (?:has )?(?:happened|became|become) (?:to|with|of) {THING}(?P<text>.+)", "changed"),
    (rf"what (?:did|have) you (?:do|done) (?:with|to) {THING}(?P<text>.+)", "changed"),
    (rf"(?:did|has|have|had) {THING}(?P<text>.+?) (?:ever |already |been )*{_CHANGED}", "changed"),
    (rf"when (?:did|was|were|has|have) {THING}(?P<text>.+?) (?:last |been )*{_CHANGED}", "changed"),
)
_NO_OBJECT = re.compile(r"^(?:you|we|i|it|that|robot|anything)$|^(?:you|we|robot) ")


def _rule(words: str) -> Changes | None:
    words = re.sub(r" (?:so far|lately|recently|just now)$", "", words)
    for pattern, kind in _WHOLE:
        if re.fullmatch(pattern, words):
            return Changes(kind)
    for pattern, kind in _OF:
        match = re.fullmatch(pattern, words)
        if match is not None and not _NO_OBJECT.match(match["text"]):
            return Changes(kind, match["text"])
    return None


register(Changes, answer_changes, _rule, priority=11)
