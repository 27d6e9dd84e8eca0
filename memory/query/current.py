"""What fits a question of today: words, place and relation, over the nodes; and what the words of any question mean."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from engram.core.contracts import MemoryQuery
from engram.core.errors import InvalidInputError, unknown_name
from engram.core.types import EMBEDDING_DIM, SceneNode
from engram.memory.graph.scene_graph import RELATIONS
from engram.memory.graph.tracker import Tracker
from engram.memory.graph.vectors import VectorIndex
from engram.memory.storage.columns import ABSENT, AGENT, OBJECT, NodeColumns
from engram.memory.storage.history import Fact, History

Embed = Callable[[str], np.ndarray]
Stays = Callable[[Sequence[SceneNode], int], Sequence[float | None]]
"""Nodes and a time [ns] -> the chance that each is still where it was last seen; None: no experience."""


class Encoder(Protocol):
    """Texts -> unit vectors."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return one embedding (n, 384) float32 of unit length for each text."""


@dataclass(frozen=True)
class RetrievalConfig:
    """How the parts of a score weigh."""

    half_distance_m: float = 1.0
    """A node this far from the asked place scores half."""
    cosine_min: float = 0.45
    """What is less alike than this does not answer a question in words."""
    cosine_margin: float = 0.25
    """Nor does what is so much less alike than the best: who asks for the bowl is not told of the cup."""
    cosine_sure: float = 0.7
    """From here on the words are taken to mean the object."""
    near_m: float = 0.5
    """What "near" means between the middles of two objects."""
    agent_persistence_s: float = 600.0
    """The same for the place of another robot, which nobody sees."""
    persistence_s: float = 7 * 86400.0
    """Time in which the chance that an unseen object is still where it was falls to 1 / e, while nothing is known of
    how long its like stay."""


@dataclass(frozen=True)
class Hits:
    """Nodes, best first."""

    nodes: tuple[SceneNode, ...] = ()
    scores: tuple[float, ...] = ()  # 0..1, for ranking
    confidence: tuple[float, ...] = ()  # 0..1, that the node is what was asked for and was where it says
    facts: tuple[Fact | None, ...] = ()  # what each rests on
    reasons: tuple[str, ...] = ()  # of robots that can, or, without nodes, that cannot: "robot0 can reach ..."


def text_embedder(encoder: Encoder | None) -> Embed:
    """Return a text -> (384,) function that remembers; without ``encoder`` MiniLM loads at the first call."""

    @lru_cache(maxsize=256)
    def embed(text: str) -> np.ndarray:
        nonlocal encoder
        if encoder is None:
            from engram.perception.embedding import default_text_encoder  # loads torch: only when asked in words

            encoder = default_text_encoder()
        vector = np.asarray(encoder.encode([text]), np.float32)[0]
        if vector.shape != (EMBEDDING_DIM,):
            raise InvalidInputError(f"encoder {type(encoder).__name__}: {vector.shape}, expected ({EMBEDDING_DIM},)")
        vector.flags.writeable = False
        return vector

    return embed


def check(query: MemoryQuery) -> None:
    """Raise InvalidInputError for a query that makes no sense."""
    if query.limit <= 0:
        raise InvalidInputError(f"MemoryQuery.limit: {query.limit}, expected 1 or more")
    if not query.radius_m > 0:
        raise InvalidInputError(f"MemoryQuery.radius_m: {query.radius_m}, expected metres above 0")
    if query.place is not None:
        place = np.asarray(query.place, np.float64)
        if place.shape != (3,) or not np.isfinite(place).all():
            raise InvalidInputError(f"MemoryQuery.place: {place.tolist()}, expected 3 finite metres")
    if query.relation and query.relation not in RELATIONS:
        raise unknown_name("relation", query.relation, RELATIONS)
    if query.valid_ns is not None and query.valid_ns[0] > query.valid_ns[1]:
        raise InvalidInputError(f"MemoryQuery.valid_ns: {query.valid_ns}, expected (start, end)")


def anchors(tracker: Tracker, name: str, then: MemoryQuery | None = None) -> list[str]:
    """Return the ids of the nodes that ``name`` means: an id, a label, or the labels that contain its words.

    With ``then``, a question about the past, what was called so at its time counts as well. Empty: there was such a
    thing once, but it is neither in the graph nor was it there at that time.

    Raises:
        UnknownNameError: there never was; lists what there is.
    """
    columns, history = tracker.columns, tracker.history
    if name in columns or (then is not None and name in tracker.gone):
        return [name]
    others: dict[str, set[int]] = {}  # buildings, rooms, places and agents
    for row in columns.fixed | columns.agents:
        others.setdefault(columns.about(row).label, set()).add(row)
    if name in ("robot", "hand") and columns.agents:
        return [columns.about(row).id for row in sorted(columns.agents)]
    for loosely in (False, True):
        known = (labels[label] for labels in (columns.by_label, others) for label in _meant(name, labels, loosely))
        ids = [columns.about(row).id for row in sorted(set().union(*known))]
        if then is not None:
            rows = history.select(then.valid_ns, then.believed_ns, rows=_facts_called(history, name, loosely))
            ids += sorted({history.words[number] for number in history.node[rows].tolist()})
        if ids:
            return list(dict.fromkeys(ids))
    if name not in tracker.gone and not len(_facts_called(history, name, True)):
        raise unknown_name("node or label", name, known_names(tracker))
    return []


def _meant(name: str, labels: Collection[str], loosely: bool) -> list[str]:
    """Return the label that is ``name``; with ``loosely`` those that contain its words, for which all are read."""
    if not loosely:
        return [name] if name in labels else []
    words = set(name.split())
    return [label for label in labels if words <= set(label.split())]


def _facts_called(history: History, name: str, loosely: bool) -> np.ndarray:
    """Return the rows (n,) of all facts whose label ``name`` means."""
    if not loosely:
        number = history.number(name)
        return np.flatnonzero(history.used & (history.label == number)) if number >= 0 else np.zeros(0, np.int64)
    numbers = np.flatnonzero(np.bincount(history.label[history.used]))
    labels = {history.words[number]: number for number in numbers.tolist()}
    meant = [labels[label] for label in _meant(name, labels, loosely)]
    return np.flatnonzero(history.used & np.isin(history.label, meant))


def known_names(tracker: Tracker) -> set[str]:
    """Return every id and label in the graph."""
    columns = tracker.columns
    others = {columns.about(row).label for row in columns.fixed | columns.agents}
    return {*columns.by_label, *others, *columns.row_of}


def called(tracker: Tracker, text: str) -> list[int]:
    """Return the rows of the agents that are called ``text``; every robot is called robot."""
    columns, words = tracker.columns, text.replace("_", " ")
    if words in ("robot", "robots"):
        return sorted(columns.agents)
    return [row for row in sorted(columns.agents) if columns.about(row).label.lower().replace("_", " ") == words]


# -- now -------------------------------------------------------------------------------------------------------------


def rank(
    tracker: Tracker, index: VectorIndex, query: MemoryQuery, config: RetrievalConfig,
    targets: list[str] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Return the rows of what fits ``query`` today, best first, their scores and their cosines, (n,) each.

    At least ``_ALIKE`` of them, if there are: who comes first among namesakes is decided later.
    """
    columns = tracker.columns
    rows, cosine = _candidates(tracker, index, query, targets, config)
    scores = cosine * columns.belief[rows]
    if query.place is not None:
        away = columns.position[rows] - query.place
        apart = np.sqrt(np.einsum("ni,ni->n", away, away))
        scores = scores * config.half_distance_m / (config.half_distance_m + apart)
    best = _best(columns, rows, scores, max(query.limit, _ALIKE))
    return rows[best], scores[best], cosine[best]


def search_now(
    tracker: Tracker, index: VectorIndex, query: MemoryQuery, targets: list[str] | None, config: RetrievalConfig,
    stays: Stays | None,
) -> Hits:  # fmt: skip
    """Return what fits ``query`` today, best first; ``targets`` are the ids that its target means, None = no target."""
    rows, scores, cosine = rank(tracker, index, query, config, targets)
    if not len(rows):
        return Hits()
    now_ns = tracker.stamp_ns if query.now_ns is None else query.now_ns
    nodes = tracker.columns.nodes(rows)
    stayed = stays(nodes, now_ns) if stays is not None else [None] * len(nodes)
    sure = [_confidence(node, alike, now_ns, stay, config)
            for node, alike, stay in zip(nodes, cosine.tolist(), stayed, strict=True)]  # fmt: skip
    chosen = list(range(len(nodes))) if query.place is not None else likeliest_first([n.label for n in nodes], sure)
    chosen = chosen[: query.limit]
    facts = [tracker.history.current(nodes[i].id) for i in chosen]
    found = [None if row is None else tracker.history.facts([row])[0] for row in facts]
    return Hits(tuple(nodes[i] for i in chosen), tuple(float(scores[i]) for i in chosen),
                tuple(sure[i] for i in chosen), tuple(found))  # fmt: skip


_ALIKE = 4
"""At least so many are compared by the chance that they are still there, even if only one is asked for."""


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
    tracker: Tracker, index: VectorIndex, query: MemoryQuery, targets: list[str] | None, config: RetrievalConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of objects and agents that pass every filter, and their cosines (1 without words)."""
    columns = tracker.columns
    narrow: np.ndarray | None = None
    if targets is not None:
        narrow = _related(tracker, query.relation or "near", targets, config)
    agents = called(tracker, query.text) if query.text else []
    if agents and targets is None and query.place is None:
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
        fits = cosine >= max(config.cosine_min, float(cosine.max()) - config.cosine_margin)
        narrow, cosine = narrow[fits], cosine[fits]
        named = np.array([names(query.text, columns.about(row).label) for row in narrow.tolist()], bool)
        if named.any():
            narrow, cosine = narrow[named], cosine[named]
    return narrow, np.clip(cosine, 0.0, 1.0).astype(np.float64)


def names(words: str, label: str) -> bool:
    """Whether ``label`` has all of ``words``: who asks for the green cube does not mean the green button, even if the
    cube is gone."""
    return set(words.split()) <= set(label.split())


def _of_layers(columns: NodeColumns, rows: np.ndarray) -> np.ndarray:
    return rows[_thing(columns, rows)]


def _thing(columns: NodeColumns, rows: np.ndarray) -> np.ndarray:
    """Tell (n,) bool which rows are objects or agents."""
    layer = columns.layer[rows]
    return (layer == OBJECT) | (layer == AGENT)


def _related(tracker: Tracker, relation: str, targets: list[str], config: RetrievalConfig) -> np.ndarray:
    """Return the rows that stand in ``relation`` to one of ``targets``; what is in a box in a room is in the room."""
    columns, graph = tracker.columns, tracker.scene.graph
    found: set[int] = set()
    if relation == "near":
        for target in targets:
            row = columns.row_of[target]
            margin = columns.half[row] + config.near_m
            centre = columns.position[row]
            if row in columns.agents:  # what is near a robot is near its hand
                centre = tracker.hands.get(columns.about(row).label, centre)
            for other in columns.objects_within(centre - margin, centre + margin) - {row}:
                gap = np.maximum(np.abs(columns.position[other] - centre) - columns.half[row], 0.0)
                if np.linalg.norm(gap) <= config.near_m and columns.state[other] != ABSENT:
                    found.add(other)
        return np.array(sorted(found), np.int64)
    for target in targets:
        found |= {columns.row_of[s] for s, _, r in graph.in_edges(target, data="relation") if r == relation}
    return np.array(sorted(found), np.int64)


def _confidence(node: SceneNode, cosine: float, now_ns: int, stayed: float | None, config: RetrievalConfig) -> float:
    """Return how sure it is that ``node`` is what was meant, was where it was seen, and ``stayed`` there since."""
    meant = min(1.0, cosine / config.cosine_sure)
    if node.layer == "agent":
        unseen_s = max(0, now_ns - node.last_seen_ns) / 1e9 if "/" in node.id else 0.0
        return meant * node.belief * float(np.exp(-unseen_s / config.agent_persistence_s))
    if stayed is None:
        stayed = float(np.exp(-max(0, now_ns - node.last_seen_ns) / 1e9 / config.persistence_s))
    return meant * node.belief * stayed
