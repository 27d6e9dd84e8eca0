"""What fits a question about the present: words, place and relation, over the nodes of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engram.core.questions import Selection
from engram.core.types import SceneNode
from engram.memory.graph.tracker import Tracker
from engram.memory.graph.vectors import VectorIndex
from engram.memory.query.hits import Hits, RetrievalConfig, Stays
from engram.memory.query.names import called, which_named
from engram.memory.storage.columns import ABSENT, AGENT, OBJECT, NodeColumns


def rank(
    tracker: Tracker, index: VectorIndex, query: Selection, config: RetrievalConfig,
    targets: list[str] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Return the rows of what fits ``query`` today, best first, their scores and their cosines, (n,) each.

    At least ``_ALIKE`` of them, if there are: who comes first among namesakes is decided later.
    """
    rows, cosine = _candidates(tracker, index, query, _related(tracker, query, targets, config), config)
    return _ranked(tracker.columns, rows, cosine, query, config)


def search_now(
    tracker: Tracker, index: VectorIndex, query: Selection, targets: list[str] | None, config: RetrievalConfig,
    stays: Stays | None,
) -> Hits:  # fmt: skip
    """Return what fits ``query`` today, best first; ``targets`` are the ids that its target means, None = no target."""
    related = _related(tracker, query, targets, config)
    found, alike = _candidates(tracker, index, query, related, config)
    rows, scores, cosine = _ranked(tracker.columns, found, alike, query, config)
    if not len(rows):
        return Hits()
    now_ns = tracker.stamp_ns if query.now_ns is None else query.now_ns
    nodes = tracker.columns.nodes(rows)
    stayed = stays(nodes, now_ns) if stays is not None else [None] * len(nodes)
    stands = [1.0 if related is None else related[row] for row in rows.tolist()]
    sure = [_confidence(node, one, now_ns, stay, config) * stood
            for node, one, stay, stood in zip(nodes, cosine.tolist(), stayed, stands, strict=True)]  # fmt: skip
    chosen = list(range(len(nodes))) if query.place is not None else likeliest_first([n.label for n in nodes], sure)
    chosen = chosen[: query.limit]
    facts = [tracker.history.current(nodes[i].id) for i in chosen]
    rest = [None if row is None else tracker.history.facts([row])[0] for row in facts]
    believed = _believed(tracker, rows[chosen])
    return Hits(
        tuple(nodes[i] for i in chosen), tuple(float(scores[i]) for i in chosen), tuple(sure[i] for i in chosen),
        tuple(rest), tuple(believed.tolist()), _told(tracker, found, related), tuple(stands[i] for i in chosen),
    )  # fmt: skip


_ALIKE = 4
"""At least so many are compared by the chance that they are still there, even if only one is asked for."""


def _ranked(
    columns: NodeColumns, rows: np.ndarray, cosine: np.ndarray, query: Selection, config: RetrievalConfig
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the best of ``rows`` (n,) first, their scores and their cosines."""
    scores = cosine * columns.belief[rows]
    if query.place is not None:
        away = columns.position[rows] - query.place
        apart = np.sqrt(np.einsum("ni,ni->n", away, away))
        scores = scores * config.half_distance_m / (config.half_distance_m + apart)
    best = _best(columns, rows, scores, max(query.limit, _ALIKE))
    return rows[best], scores[best], cosine[best]


def _believed(tracker: Tracker, rows: np.ndarray) -> np.ndarray:
    """Tell (n,) bool which objects are believed to be there; robots say themselves where they are."""
    columns = tracker.columns
    there = (columns.belief[rows] >= tracker.config.sure_belief) & (columns.state[rows] != ABSENT)
    return there | (columns.layer[rows] == AGENT)


def _told(tracker: Tracker, rows: np.ndarray, related: Mapping[int, float] | None) -> int:
    """Return how many of ``rows`` are believed to be there, and to stand as was asked."""
    there = rows[_believed(tracker, rows)].tolist()
    return len(there) if related is None else sum(related[row] >= 0.5 for row in there)


def likeliest_first(labels: Sequence[str], sure: Sequence[float]) -> list[int]:
    """Return indices in the order given, but of those with one label the one that is most surely there first.

    Of two red mugs that were believed in alike when they were last seen, who asks wants the one seen since.
    """
    order = list(range(len(labels)))
    for label in set(labels):
        slots = [i for i, other in enumerate(labels) if other == label]
        if len(slots) > 1:
            for slot, i in zip(slots, sorted(slots, key=lambda i: -sure[i]), strict=True):
                order[slot] = i
    return order


def _best(columns: NodeColumns, rows: np.ndarray, scores: np.ndarray, limit: int) -> np.ndarray:
    """Return which of ``rows`` fit best; of two that fit alike, the one seen last, then the one with the smaller id."""
    some = np.argsort(-scores, kind="stable")[: 4 * limit + 16]
    ids = np.array([columns.about(row).id for row in rows[some].tolist()])
    order = np.lexsort((ids, -columns.last_ns[rows[some]], -np.round(scores[some], 3)))
    return some[order[:limit]]


def _candidates(
    tracker: Tracker, index: VectorIndex, query: Selection, related: Mapping[int, float] | None, config: RetrievalConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of objects and agents that pass every filter, and their cosines (1 without words)."""
    columns = tracker.columns
    narrow = None if related is None else np.array(sorted(related), np.int64)
    agents = called(tracker, query.text) if query.text else []
    if agents and related is None and query.place is None:
        return np.array(agents, np.int64), np.ones(len(agents))
    if query.place is not None and np.isfinite(query.radius_m):
        place = np.asarray(query.place, np.float64)
        found = columns.objects_within(place - query.radius_m, place + query.radius_m)
        near = np.sort(np.fromiter(found, np.int64, len(found)))
        away = columns.position[near] - place
        near = near[np.einsum("ni,ni->n", away, away) <= query.radius_m**2]
        narrow = near if narrow is None else np.intersect1d(narrow, near)
    if narrow is not None:
        narrow = _of_layers(columns, narrow)
        cosine = np.ones(len(narrow)) if query.vector is None else columns.embedding[narrow] @ query.vector
    elif query.vector is None:
        narrow = columns.rows("object", "agent")
        cosine = np.ones(len(narrow))
    else:
        narrow, cosine = index.nearest(query.vector, 8 * query.limit + 64)
        keep = _thing(columns, narrow)
        narrow, cosine = narrow[keep], cosine[keep]
    if query.vector is not None and len(cosine):
        named = which_named(query.text, [columns.about(row).label for row in narrow.tolist()])
        least = max(config.cosine_min, float(cosine.max()) - config.cosine_margin)
        fits = named if named.any() else cosine >= least
        narrow, cosine = narrow[fits], cosine[fits]
    return narrow, np.clip(cosine, 0.0, 1.0).astype(np.float64)


def _of_layers(columns: NodeColumns, rows: np.ndarray) -> np.ndarray:
    return rows[_thing(columns, rows)]


def _thing(columns: NodeColumns, rows: np.ndarray) -> np.ndarray:
    """Tell (n,) bool which rows are objects or agents."""
    layer = columns.layer[rows]
    return (layer == OBJECT) | (layer == AGENT)


def _related(
    tracker: Tracker, query: Selection, targets: list[str] | None, config: RetrievalConfig
) -> dict[int, float] | None:
    """Return the rows that stand in the asked relation to one of ``targets``, each with the belief in that target.

    What stands on a tray that may be a false detection may stand on none. None = there is no target.
    """
    if targets is None:
        return None
    columns, found = tracker.columns, dict[int, float]()
    for target in targets:
        row = columns.row_of[target]
        there = 1.0 if row in columns.agents else float(columns.belief[row])
        for other in _related_to(tracker, query.relation or "near", row, config):
            found[other] = max(found.get(other, 0.0), there)
    return found


def _related_to(tracker: Tracker, relation: str, row: int, config: RetrievalConfig) -> set[int]:
    """Return the rows that stand in ``relation`` to ``row``; what is in a box in a room is in the room."""
    columns = tracker.columns
    if relation != "near":
        edges = tracker.scene.graph.in_edges(columns.about(row).id, data="relation")
        return {columns.row_of[source] for source, _, how in edges if how == relation}
    centre, half = columns.position[row], columns.half[row]
    if row in columns.agents:  # what is near a robot is near its hand
        centre = tracker.hands.get(columns.about(row).label, centre)
    margin, found = half + config.near_m, set()
    for other in columns.objects_within(centre - margin, centre + margin) - {row}:
        gap = np.maximum(np.abs(columns.position[other] - centre) - half, 0.0)
        if np.linalg.norm(gap) <= config.near_m and columns.state[other] != ABSENT:
            found.add(other)
    return found


def _confidence(node: SceneNode, cosine: float, now_ns: int, stayed: float | None, config: RetrievalConfig) -> float:
    """Return how sure it is that ``node`` is what was meant, was where it was seen, and ``stayed`` there since."""
    meant = min(1.0, cosine / config.cosine_sure)
    if node.layer == "agent":
        unseen_s = max(0, now_ns - node.last_seen_ns) / 1e9 if "/" in node.id else 0.0
        return meant * node.belief * float(np.exp(-unseen_s / config.agent_persistence_s))
    if stayed is None:
        stayed = float(np.exp(-max(0, now_ns - node.last_seen_ns) / 1e9 / config.persistence_s))
    return meant * node.belief * stayed
