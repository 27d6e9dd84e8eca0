"""What fits a question about the past: words, place and relation, over the facts that were true, or believed, then."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from engram.core.questions import Selection
from engram.core.types import EMBEDDING_DIM, Pose, SceneNode, observation_id, unchecked
from engram.memory.graph.tracker import Tracker
from engram.memory.graph.vectors import VectorIndex
from engram.memory.query.hits import Hits, RetrievalConfig
from engram.memory.query.names import anchors, called, names
from engram.memory.storage.columns import OBJECT
from engram.memory.storage.fact_columns import FOREVER, Fact
from engram.memory.storage.history import History


@dataclass(frozen=True)
class _Spot:
    """A target as it stood at the asked time."""

    node_id: str
    place: np.ndarray  # (3,) m
    half: np.ndarray  # (3,) m, of its box
    is_object: bool


def search_then(tracker: Tracker, index: VectorIndex, query: Selection, config: RetrievalConfig) -> Hits:
    """Return what was true at ``valid_ns``, as the memory believed at ``believed_ns``, best first."""
    history = tracker.history
    targets, spots = _targets_then(tracker, query) if query.target else (None, [])
    named = _named(tracker, index, query, config) if query.vector is not None else None
    if named is not None and not named:
        return Hits()
    around = query.place if named is None and np.isfinite(query.radius_m) else None
    rows = None if around is None else history.near(around, query.radius_m)
    if rows is None and named is None and targets is not None:
        rows = _about_then(history, query, targets, spots, config)
    rows = history.select(query.valid_ns, query.believed_ns, None if named is None else list(named), rows)
    if targets is not None and query.relation != "near":
        rows = _inside_then(history, rows, query, targets, spots)
    if query.place is not None and around is None:
        rows = rows[np.linalg.norm(history.place[rows] - query.place, axis=1) <= query.radius_m]
    rows = _newest_of_each(history, rows)
    if targets is not None and query.relation == "near":
        rows = _near_then(history, rows, spots, config)
    if not len(rows):
        return Hits()
    ids = [history.words[number] for number in history.node[rows].tolist()]
    cosine = np.ones(len(rows)) if named is None else np.array([named[node_id] for node_id in ids])
    held = chances(tracker, rows, query, config)
    scores = cosine * held
    best = np.lexsort((np.array(ids), -history.last_sight[rows], -np.round(scores, 3)))[: query.limit]
    there = _there_then(tracker, rows, ids, held, query)
    sure = np.minimum(1.0, cosine[best] / config.cosine_sure) * held[best]
    facts = history.facts(rows[best])
    felt = sure
    if query.believed_ns is not None and asked(query) >= query.believed_ns:  # what a question of then was told
        felt = _belief(history, rows[best], query, tracker)
    nodes = nodes_then(tracker, facts, query, felt.tolist())
    return Hits(nodes, tuple(scores[best].tolist()), tuple(sure.tolist()), tuple(facts),
                tuple(there[best].tolist()), int(there.sum()))  # fmt: skip


def _there_then(
    tracker: Tracker, rows: np.ndarray, ids: Sequence[str], held: np.ndarray, query: Selection
) -> np.ndarray:
    """Tell (n,) bool which objects were there at some time of the interval, or were believed to be at ``believed_ns``.

    ``held`` is the chance (n,) that each was there at its end. What was seen there at its begin or later was there,
    unless it was never seen often enough to be an answer.
    """
    history, half = tracker.history, tracker.config.sure_belief
    if query.believed_ns is not None and asked(query) >= query.believed_ns:
        return history.present[rows] & (_belief(history, rows, query, tracker) >= half)
    there = held >= half
    if query.believed_ns is None and query.valid_ns is not None:
        seen = np.flatnonzero(~there & (history.last_sight[rows] >= query.valid_ns[0]))
        ever = history.ever_sure({ids[i] for i in seen.tolist()})
        there[seen] = [ever[ids[i]] for i in seen.tolist()]
    return there & history.present[rows]


def _targets_then(tracker: Tracker, query: Selection) -> tuple[list[str], list[_Spot]]:
    """Return the ids that ``query.target`` meant at the asked time, and those that were somewhere then."""
    columns, history = tracker.columns, tracker.history
    targets = anchors(tracker, query.target, query)
    rows = _newest_of_each(history, history.select(query.valid_ns, query.believed_ns, targets))
    places = {history.words[history.node[row]]: history.place[row] for row in rows.tolist() if history.present[row]}
    spots = []
    for node_id in targets:
        row = columns.row_of.get(node_id)
        place = columns.position[row] if row in columns.fixed else places.get(node_id)
        if place is not None:
            half = tracker.removed.size(node_id) / 2 if row is None else columns.half[row]
            spots.append(_Spot(node_id, place, half, row is None or columns.layer[row] == OBJECT))
    return targets, spots


def _near_then(history: History, rows: np.ndarray, spots: Sequence[_Spot], config: RetrievalConfig) -> np.ndarray:
    """Return those facts whose place was near where a target stood then."""
    near = np.zeros(len(rows), bool)
    for spot in spots:
        apart = np.linalg.norm(history.place[rows] - spot.place, axis=1)
        others = history.node[rows] != history.number(spot.node_id)
        near |= others & (apart <= config.near_m + float(np.linalg.norm(spot.half)))
    return rows[near]


def _named(tracker: Tracker, index: VectorIndex, query: Selection, config: RetrievalConfig) -> dict[str, float]:
    """Return node id -> cosine of every object, present or past, that the words may mean."""
    columns, history = tracker.columns, tracker.history
    assert query.vector is not None
    agents = called(tracker, query.text)
    if agents:
        return {columns.about(row).id: 1.0 for row in agents}
    rows, cosine = index.nearest(query.vector, 1000)
    near = [(columns.about(row), c) for row, c in zip(rows.tolist(), np.clip(cosine, 0, 1).tolist(), strict=True)]
    found = {one.id: c for one, c in near if c >= config.cosine_min or names(query.text, one.label)}
    wanted = set(query.text.split())
    for node_id in tracker.removed:  # not in the graph any more: its label is all that is left
        labels = {fact.label for fact in history.of(node_id)}
        score = max((len(wanted & set(label.split())) / max(1, len(wanted)) for label in labels), default=0.0)
        if score >= config.cosine_min:
            found[node_id] = score
    best = max(found.values(), default=0.0)
    meant = {node_id: score for node_id, score in found.items() if names(query.text, _label(tracker, node_id))}
    return meant or {node_id: score for node_id, score in found.items() if score >= best - config.cosine_margin}


def _label(tracker: Tracker, node_id: str) -> str:
    """Return the label of a node, the last one of a node that is not in the graph any more."""
    columns = tracker.columns
    if node_id in columns:
        return columns.about(columns.row_of[node_id]).label
    return tracker.history.of(node_id)[-1].label


def _about_then(
    history: History, query: Selection, targets: list[str], spots: Sequence[_Spot], config: RetrievalConfig
) -> np.ndarray:
    """Return all facts that can have stood in the asked relation to the target, and few others."""
    found = [history.pointing_at(targets)]
    margins = {"near": config.near_m, "in": 0.0, "": 0.0}
    for spot in spots if query.relation in margins else ():
        found.append(history.near(spot.place, float(np.linalg.norm(spot.half)) + margins[query.relation]))
    return np.unique(np.concatenate(found))


def _inside_then(
    history: History, rows: np.ndarray, query: Selection, targets: list[str], spots: Sequence[_Spot]
) -> np.ndarray:
    """Return facts whose relation was the asked one, or whose place lies in the target's box (rooms)."""
    told = history.of_target(rows, targets)
    told = told[[history.words[history.relation[row]] == (query.relation or "in") for row in told.tolist()]]
    if query.relation not in ("in", ""):
        return told
    rooms = [spot for spot in spots if not spot.is_object]
    inside = [rows[(np.abs(history.place[rows] - room.place) < room.half).all(axis=1)] for room in rooms]
    return np.unique(np.concatenate((told, *inside)))


def _newest_of_each(history: History, rows: np.ndarray) -> np.ndarray:
    """Return one fact an object: the latest in which it was there, else the latest."""
    keys = (history.believed_from[rows], history.valid_from[rows], history.present[rows], history.node[rows])
    rows = rows[np.lexsort(keys)]
    return rows[np.diff(history.node[rows], append=-1) != 0]


def asked(query: Selection) -> int:
    """Return the instant that a question about the past is about: the end of its interval."""
    end = query.valid_ns[1] if query.valid_ns is not None else query.believed_ns
    assert end is not None
    return end


def chances(tracker: Tracker, rows: np.ndarray, query: Selection, config: RetrievalConfig) -> np.ndarray:
    """Return the probability (n,) that each fact held at the asked time.

    While it was being seen: by the number of sights. After the last sight the object may have left: with a constant
    hazard when nothing more is known, evenly over the gap when a later look found it gone; not at all when a later look
    found it there, be it on or in something else, or under another name.
    """
    history = tracker.history
    last, end = history.last_sight[rows].copy(), history.valid_to[rows].copy()
    belief, at = _believed_ns(query), asked(query)
    ended = (end != FOREVER) & (belief >= history.closed_at[rows]) & history.present[rows]
    for i in np.flatnonzero(ended & (at > last)).tolist():
        stay = _stay(history, int(rows[i]), belief, tracker.config.fact_m)
        last[i], end[i] = history.last_sight[stay], history.valid_to[stay]
        ended[i] = end[i] != FOREVER and belief >= history.closed_at[stay]
    gap = np.maximum(0, np.minimum(at, end - 1) - last)
    evenly = 1 - gap / np.maximum(1, end - last)
    stayed = np.where(ended, evenly, np.exp(-gap / 1e9 / config.persistence_s))
    seen = _belief(history, rows, query, tracker)
    return seen * np.where((gap > 0) & history.present[rows], stayed, 1.0)


def _stay(history: History, row: int, believed_ns: int, same_m: float) -> int:
    """Return the last of the facts by which the object of fact ``row`` went on being where it was: all of them within
    ``same_m`` of that place, however small the steps."""
    place = history.place[row].tolist()
    for after in history.after(row, believed_ns):
        apart = math.dist(history.place[after].tolist(), place)
        carried = "held_by" in (history.words[history.relation[row]], history.words[history.relation[after]])
        if not history.present[after] or carried or apart > same_m or history.valid_from[after] > history.valid_to[row]:
            break
        row = after
    return row


def _belief(history: History, rows: np.ndarray, query: Selection, tracker: Tracker) -> np.ndarray:
    """Return how much (n,) was believed, at the time that the question is about, in what each fact says.

    An answer is believed at least half, what was none less: by the sights that there were, all sure of themselves. Of
    what was over then, the memory knew whether it was an answer in the end.
    """
    believed_ns, sights = _believed_ns(query), history.sights[rows]
    answers = (history.sure_from[rows] <= believed_ns) & (believed_ns < history.sure_to[rows])
    over = believed_ns >= history.closed_at[rows]
    over |= (query.believed_ns is None) & (asked(query) < history.sure_to[rows])
    past = np.flatnonzero(~answers & over)
    ids = [history.words[number] for number in history.node[rows[past]].tolist()]
    ever = history.ever_sure(set(ids), believed_ns)
    answers[past] = [ever[node_id] for node_id in ids]
    fusion, half = tracker.config.fusion, tracker.config.sure_belief
    odds = fusion.prior / (1 - fusion.prior) * fusion.hit_ratio ** np.minimum(sights, 2).astype(np.float64)
    unsure = np.minimum(half - 0.01, odds / (1 + odds))
    return np.where(answers | ~history.present[rows], np.maximum(half, sights / (sights + 0.2)), unsure)


def _believed_ns(query: Selection) -> int:
    return FOREVER - 1 if query.believed_ns is None else query.believed_ns


def nodes_then(
    tracker: Tracker, facts: Sequence[Fact], query: Selection, sure: Sequence[float]
) -> tuple[SceneNode, ...]:
    """Return the objects of ``facts`` as they were, each believed as much as ``sure`` (n,) says."""
    columns = tracker.columns
    ids = list(dict.fromkeys(fact.node_id for fact in facts if fact.node_id in columns))
    today = dict(zip(ids, columns.nodes([columns.row_of[node_id] for node_id in ids]), strict=True))
    then = [
        _node_then(today.get(fact.node_id) or _left(tracker, fact), fact, query, s)
        for fact, s in zip(facts, sure, strict=True)
    ]
    believed = FOREVER - 1 if query.believed_ns is None else query.believed_ns
    return tuple(
        node
        if node.layer != "agent"
        else replace(node, embodiment=tracker.embodiments.at(node.id, asked(query), believed))
        for node in then
    )


def _left(tracker: Tracker, fact: Fact) -> SceneNode:
    """Return what is known of the object of ``fact``, which is not in the graph any more."""
    none = np.zeros(EMBEDDING_DIM, np.float32)
    upright = Pose(fact.place, np.array([1.0, 0.0, 0.0, 0.0]), tracker.config.frame)
    size = tracker.removed.size(fact.node_id)
    return SceneNode(fact.node_id, "object", fact.label, upright, np.eye(3) * 1e-4, size, np.full(3, 0.5), none, 0.5,
                     "unseen", 0, 0, 1)  # fmt: skip


def _node_then(node: SceneNode, fact: Fact, query: Selection, sure: float) -> SceneNode:
    """Return the object of ``fact`` as it was; ``node`` is what it is today."""
    at = asked(query)
    last = min(fact.last_sight, at)
    state = "absent" if not fact.present else "visible" if at <= fact.last_sight else "unseen"
    camera = fact.evidence[-1].rpartition("@")[0] if fact.evidence else ""
    evidence = fact.evidence[-1] if last == fact.last_sight and fact.evidence else observation_id(camera, last)
    place = fact.place.copy()
    place.flags.writeable = False
    return unchecked(
        SceneNode, node.id, node.layer, fact.label, unchecked(Pose, place, node.pose.quaternion, node.pose.frame),
        node.position_covariance, node.size, node.color, node.embedding, sure if fact.present else 1 - sure, state,
        fact.valid_from, last, fact.sights, fact.evidence[0] if fact.evidence else "", evidence if camera else "",
        node.embodiment,
    )  # fmt: skip
