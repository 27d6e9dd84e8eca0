"""What was found -> one sentence, how sure it is, what it rests on, and whether looking would help."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from engram.core.contracts import MemoryAnswer, MemoryQuery
from engram.core.types import Evidence, SceneNode
from engram.memory.graph.containment import deep, last_looks
from engram.memory.graph.tracker import Tracker
from engram.memory.query.advice import AdviceConfig, Option, advise
from engram.memory.query.current import Hits, anchors
from engram.memory.query.temporal import asked
from engram.memory.storage.columns import LAYER_CODE
from engram.memory.storage.history import FOREVER, Fact

Usual = Callable[[SceneNode], Sequence[tuple[np.ndarray, float]]]
"""A node -> its usual places (3,) m, each with its share of the stays."""
_YEAR_NS = 365 * 86_400 * 10**9


def answer(
    tracker: Tracker, query: MemoryQuery, hits: Hits, advice: AdviceConfig, usual: Usual | None = None
) -> MemoryAnswer:
    """Say what ``hits`` mean for ``query``; ``usual`` knows the usual places of an object."""
    past = query.valid_ns is not None or query.believed_ns is not None
    now_ns = tracker.stamp_ns if query.now_ns is None else query.now_ns
    at = asked(query) if past else now_ns
    evidence = tuple(_evidence(tracker, node, fact, score, at)
                     for node, fact, score in zip(hits.nodes, hits.facts, hits.scores, strict=True))  # fmt: skip
    if query.ability:
        text, sure = _able(query, hits), max(hits.confidence, default=0.5 if hits.reasons else 0.0)
    elif query.relation and not query.text:
        text, sure = _listed(tracker, query, hits), min(hits.confidence, default=_emptiness(tracker, query))
    else:
        text, sure = _first(tracker, query, hits, at), hits.confidence[0] if hits.nodes else 0.0
    age = max(0, at - hits.nodes[0].last_seen_ns) / 1e9 if hits.nodes else float("inf")
    advised = None
    wanted = bool(query.text) and not past and not query.ability
    if wanted and (sure < advice.sure or query.robot_place is not None):
        habits = usual(hits.nodes[0]) if usual is not None and hits.nodes else ()
        advised = advise(options(tracker, hits, now_ns, habits), query.robot_place, advice)
    return MemoryAnswer(hits.nodes, hits.scores, text, sure, age, evidence, advised)


def with_evidence(found: MemoryAnswer, more: Sequence[Evidence]) -> MemoryAnswer:
    """Return ``found`` with the evidence of other stores."""
    evidence = sorted((*found.evidence, *more), key=lambda one: -one.score)
    text = found.text
    if not found.nodes and more:
        text = f"{text} But I remember: {evidence[0].text}"
    return replace(found, text=text, evidence=tuple(evidence))


def options(
    tracker: Tracker, hits: Hits, now_ns: int, usual: Sequence[tuple[np.ndarray, float]] = ()
) -> list[Option]:  # fmt: skip
    """Return where the object may be: where it was last, and, if it left, its ``usual`` places and all others.

    A place that was looked at since the object was last seen counts as much less as the time in which it can have been
    brought there unseen is shorter. What was put down elsewhere on the same surface is found by the same look.
    """
    wanted = hits.nodes[0].label if hits.nodes else ""
    found = [Option(n.pose.position, where(tracker, n.pose.position) or f"{n.label}'s last place", sure)
             for n, sure in zip(hits.nodes, hits.confidence, strict=True)
             if n.label == wanted and n.state != "absent"]  # fmt: skip
    last_seen = max((node.last_seen_ns for node in hits.nodes if node.label == wanted), default=-1)
    rows = _surfaces(tracker)
    centre, half = tracker.columns.position[rows], tracker.columns.half[rows]
    weights = np.full(len(rows), _ANYWHERE / max(1, len(rows)))
    for place, share in usual:
        on = _carriers(place, centre, half)
        weights[on] += (1 - _ANYWHERE) * share / max(1, on.sum())
    looked = last_looks(tracker.columns, tracker.coverage, rows)
    since = (now_ns - looked) / max(1, now_ns - last_seen) if hits.nodes else np.full(len(rows), _UNHEARD_OF)
    weights *= np.where(looked > last_seen, np.clip(since, 0.0, 1.0), 1.0)
    left = float(np.prod([1.0 - option.seen for option in found]))
    shares = left * weights / (weights.sum() + _NOWHERE)
    for i, option in enumerate(found):
        here = _carriers(option.place, centre, half)
        found[i] = replace(option, moved=float(shares[here].sum()))
        shares[here] = 0.0
    return found + [Option(p.copy(), f"the {tracker.columns.about(int(row)).label}", 0.0, float(s))
                    for row, p, s in zip(rows, centre, shares, strict=True) if s > 0]  # fmt: skip


_ANYWHERE = 0.3
"""Share of moves that end at no usual place."""
_NOWHERE = 0.05
"""Weight of being at no known place at all, where all usual and other places together have at most 1."""
_UNHEARD_OF = 0.1
"""Weight of a place that was looked at for what was never seen there or elsewhere."""
_ABOVE_M = 0.4
"""What lies within this height above a surface lies on it."""


def _surfaces(tracker: Tracker) -> np.ndarray:
    """Return the rows of places, and of rooms that no known place is in."""
    columns = tracker.columns
    rows = np.sort(np.fromiter(columns.fixed, np.int64, len(columns.fixed)))
    rows = rows[columns.layer[rows] != LAYER_CODE["building"]]
    is_place = columns.layer[rows] == LAYER_CODE["place"]
    offset = np.abs(columns.position[rows][:, None] - columns.position[rows[is_place]][None])
    furnished = (offset < columns.half[rows][:, None]).all(axis=2).any(axis=1)
    return rows[is_place | ~furnished]


def _carriers(place: np.ndarray, centre: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Tell (n,) bool in or on which boxes (n, 3) m a ``place`` (3,) m is."""
    offset = place - centre
    above = (offset[:, 2] > -half[:, 2] - 0.05) & (offset[:, 2] < half[:, 2] + _ABOVE_M)
    return (np.abs(offset[:, :2]) < half[:, :2] + 0.05).all(axis=1) & above


def where(tracker: Tracker, place: np.ndarray) -> str:
    """Return the smallest known place or room that holds (3,) m, "the drawer"; empty = none."""
    columns = tracker.columns
    rows = np.sort(np.fromiter(columns.fixed, np.int64, len(columns.fixed)))
    rows = rows[(np.abs(columns.position[rows] - place) < columns.half[rows] + 0.02).all(axis=1)]
    if not len(rows):
        return ""
    return f"the {columns.about(int(rows[np.argmin(np.prod(columns.half[rows], axis=1))])).label}"


# -- sentences -------------------------------------------------------------------------------------------------------


def _first(tracker: Tracker, query: MemoryQuery, hits: Hits, at: int) -> str:
    past = query.valid_ns is not None or query.believed_ns is not None
    if not hits.nodes:
        what = f"nothing like {query.text!r}" if query.text else "nothing there"
        if past:
            return f"I know of {what} at that time."
        return f"I know of {what}."
    node, fact = hits.nodes[0], hits.facts[0]
    x, y, z = (float(v) for v in node.pose.position)
    place = f"at x {x:.2f}, y {y:.2f}, z {z:.2f} m"
    support = _support(tracker, fact)
    room = where(tracker, node.pose.position)
    place += f", {support}" if support else f", at {room}" if room else ""
    if node.layer == "agent" and not past:
        return _robot(tracker, node, place, at)
    if past and query.believed_ns is not None:
        return f"I thought the {node.label} was {place}; last seen {_age(at - node.last_seen_ns)} before."
    if past and node.state == "absent":
        return f"The {node.label} was not where I had seen it, {place}; I do not know where it was."
    if past:
        seen = "I saw it there" if node.state == "visible" else f"last seen {_age(at - node.last_seen_ns)} before"
        return f"{_name(node)} was {place}; {seen}; confidence {hits.confidence[0]:.2f}."
    if node.state == "absent":
        return f"The {node.label} is gone; I saw it {_age(at - node.last_seen_ns)} ago {place}."
    unseen = f"it is {node.state}, last seen {_age(at - node.last_seen_ns)} ago"
    seen = "I see it" if node.state == "visible" else unseen
    return f"The {node.label} is {place}; {seen}; belief {node.belief:.2f}."


def _robot(tracker: Tracker, node: SceneNode, place: str, at: int) -> str:
    """Say where a robot is and what it holds."""
    if node.belief == 0:
        return f"I do not know where {node.label} is."
    known = tracker.columns.row_of.get(tracker.grasps.held(node.label) or "")
    holds = "" if known is None else f"; it holds the {tracker.columns.about(known).label}"
    return f"{node.label} is {place}; last heard of {_age(at - node.last_seen_ns)} ago{holds}."


def _able(query: MemoryQuery, hits: Hits) -> str:
    """Name the robots that can, or say why none can."""
    if not hits.reasons:
        return "I know of no robot."
    told = "; ".join(hits.reasons)
    return f"{told}." if hits.nodes else f"No robot that I know: {told}."


def _listed(tracker: Tracker, query: MemoryQuery, hits: Hits) -> str:
    """Answer "what is in the drawer"."""
    past = query.valid_ns is not None or query.believed_ns is not None
    be = "was" if past else "is"
    relation = query.relation.replace("_", " ")
    target = query.target or "there"
    think = "I thought that " if query.believed_ns is not None else ""
    there = [f"the {node.label}" for node in hits.nodes if node.state != "absent"]
    if there:
        verb = be if len(there) == 1 else {"is": "are", "was": "were"}[be]
        names = " and ".join(filter(None, (", ".join(there[:-1]), there[-1])))
        text = f"{think}{names} {verb} {relation} the {target}."
        return text[0].upper() + text[1:]
    if not past and _last_look(tracker, query) is None:
        return f"I do not know: I have never looked {'into' if query.relation == 'in' else 'at'} the {target}."
    text = f"{think}nothing {be} {relation} the {target}."
    return text[0].upper() + text[1:]


def _last_look(tracker: Tracker, query: MemoryQuery) -> int | None:
    """Return when the target's box was last looked at."""
    columns = tracker.columns
    looks = []
    for row in [columns.row_of[node_id] for node_id in anchors(tracker, query.target)] if query.target else ():
        if row in columns.agents:
            return tracker.stamp_ns
        if query.relation == "in" and len(deep(columns, np.array([row]))):
            looks.append(tracker.coverage.into.get(columns.about(row).id))
            continue
        half = columns.half[row] + (0.05 if query.relation != "in" else 0.0)
        looks.append(tracker.coverage.last_look(columns.position[row] - half, columns.position[row] + half))
    return max((look for look in looks if look is not None), default=None)


def _emptiness(tracker: Tracker, query: MemoryQuery) -> float:
    """How sure it is that nothing is there: half-way at best, objects are missed and come."""
    return 0.0 if _last_look(tracker, query) is None else 0.5


def _name(node: SceneNode) -> str:
    return node.label if node.layer == "agent" else f"The {node.label}"


def _support(tracker: Tracker, fact: Fact | None) -> str:
    """Say what holds or carries it, "on the table"; empty = nothing does, or what did has left the graph."""
    row = None if fact is None else tracker.columns.row_of.get(fact.target)
    if fact is None or row is None:
        return ""
    label = tracker.columns.about(row).label
    return f"{fact.relation.replace('_', ' ')} {'' if fact.relation == 'held_by' else 'the '}{label}"


def _evidence(tracker: Tracker, node: SceneNode, fact: Fact | None, score: float, at: int) -> Evidence:
    ids = tuple(dict.fromkeys(i for i in (node.last_evidence, node.first_evidence) if i))
    source = "graph"
    text = f"{node.label} {node.state} at {_stamp(node.last_seen_ns)}"
    if fact is not None:
        end = "" if fact.valid_to == FOREVER else f" until {_stamp(fact.valid_to)}"
        state = "at its place" if fact.present else "gone from its place"
        text = f"{fact.label} {state} from {_stamp(fact.valid_from)}{end}, {fact.sights} sights"
        ids = fact.evidence or ids
        source = "history"
    return Evidence(source, text, min(1.0, score), node.last_seen_ns, ids, node.id, node.pose.position)


def _stamp(stamp_ns: int) -> str:
    """Return a stamp in words: the date if it is one, else seconds of the simulation's clock."""
    if stamp_ns < _YEAR_NS:
        return f"{stamp_ns / 1e9:.1f} s"
    return dt.datetime.fromtimestamp(stamp_ns / 1e9, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _age(age_ns: int) -> str:
    seconds = max(0, age_ns) / 1e9
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"
