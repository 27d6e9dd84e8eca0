"""Three simple memories behind the Memory contract, to measure ours against.

All three keep sightings (what, where, when) and answer with the newest that fits; none knows that a thing is gone.
Asked about the past, they answer with what was seen until then.
They are stronger than what they are named after: each entry has the object's own place, not the robot's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engram.core.contracts import Memory, MemoryAnswer
from engram.core.questions import FindObject, Question, Selection
from engram.core.types import EMBEDDING_DIM, GraphUpdate, MemoryTokens, SceneNode, SceneObservation
from engram.memory.graph.fusion import FusionConfig, spawn
from engram.memory.graph.text_embedding import Encoder, text_embedder

_TOKENS = 16
APART_M = 0.3
"""Two sightings of one label nearer than this are one answer."""


class SightingMemory(Memory):
    """The newest ``capacity`` sightings (None: all of them), asked by label or meaning; the newest fit wins.

    ``capacity=100`` is what KARMA's released code keeps (Wang et al. 2024); None is a full history.
    """

    def __init__(self, capacity: int | None = None, encoder: Encoder | None = None) -> None:
        self._sightings: deque[SceneNode] = deque(maxlen=capacity)
        self._embed = text_embedder(encoder)
        self._sequence = 0

    def update(self, scene: SceneObservation) -> GraphUpdate:
        """Append every object of the frame."""
        added = sightings(scene, self._sequence)
        self._sequence += len(added)
        self._sightings.extend(added)
        return GraphUpdate(scene.stamp_ns, self._sequence, False, tuple(added))

    def query(self, question: Question) -> MemoryAnswer:
        """Return the newest sightings of what fits the text best, one a place."""
        query = _selection(question)
        return newest_answer(list(self._sightings), query, self._embed(query.text))

    def context(self, instruction: str, stamp_ns: int) -> MemoryTokens:
        """Return the sightings that fit ``instruction`` best, newest first, and padding."""
        nodes = self.query(FindObject(instruction, limit=_TOKENS)).nodes
        tokens, age = np.zeros((_TOKENS, EMBEDDING_DIM), np.float32), np.zeros(_TOKENS, np.float32)
        place = np.zeros((_TOKENS, 3), np.float32)
        for row, node in enumerate(nodes):
            tokens[row], place[row] = node.embedding, node.pose.position
            age[row] = max(0, stamp_ns - node.last_seen_ns) / 1e9
        ids = tuple(node.id for node in nodes) + ("",) * (_TOKENS - len(nodes))
        return MemoryTokens(stamp_ns, self._sequence, tokens, age, place, np.arange(_TOKENS) < len(nodes), ids)

    def graph(self, at_ns: int | None = None) -> GraphUpdate:
        """Return all sightings that are kept."""
        return GraphUpdate(0, self._sequence, True, tuple(self._sightings))

    def commit(self) -> int:
        """Nothing is ever on disk."""
        return 0


class CaptionMemory(SightingMemory):
    """Append-only captions of what each frame shows, found by vector search (ReMEmbR: Anwar et al. 2024).

    Of the ``k`` captions nearest in meaning, the newest that mentions the thing gives the answer, as a language model
    that reads the retrieved captions with their times would.
    """

    def __init__(self, k: int = 20, encoder: Encoder | None = None) -> None:
        super().__init__(None, encoder)
        self._k = k
        self._captions: np.ndarray = np.zeros((1024, EMBEDDING_DIM), np.float32)
        self._shown: list[list[SceneNode]] = []

    def update(self, scene: SceneObservation) -> GraphUpdate:
        """Append one caption, if anything is in view."""
        change = super().update(scene)
        if change.nodes:
            if len(self._shown) == len(self._captions):
                self._captions = np.concatenate((self._captions, np.zeros_like(self._captions)))
            words = ", ".join(sorted({node.label for node in change.nodes}))
            self._captions[len(self._shown)] = self._embed(f"I see: {words}")
            self._shown.append(list(change.nodes))
        return change

    def query(self, question: Question) -> MemoryAnswer:
        """Return what the best captions say of the thing, newest first."""
        query = _selection(question)
        vector = self._embed(query.text)
        shown = bisect_right(self._shown, until_ns(query), key=lambda nodes: nodes[0].last_seen_ns)
        similar = self._captions[:shown] @ vector
        best = np.argsort(-similar, kind="stable")[: self._k]
        return newest_answer([node for i in sorted(best) for node in self._shown[i]], query, vector)


def sightings(scene: SceneObservation, start: int) -> list[SceneNode]:
    """Return one node for each object of a frame, numbered from ``start``."""
    return [
        replace(spawn(f"sighting_{start + i}", seen, scene.stamp_ns, FusionConfig()), belief=1.0)
        for i, seen in enumerate(scene.objects)
    ]


def _selection(question: Question) -> Selection:
    return question.selection() or Selection(limit=question.limit)


def until_ns(query: Selection) -> float:
    """Return the newest stamp that counts for ``query``."""
    return float("inf") if query.valid_ns is None else query.valid_ns[1]


def newest_answer(kept: Sequence[SceneNode], query: Selection, vector: np.ndarray) -> MemoryAnswer:
    """Return the newest of ``kept`` (oldest first) that fit ``query``: the best label, within the radius."""
    newest = until_ns(query)
    fits = [
        node
        for node in kept
        if node.last_seen_ns <= newest
        and (query.place is None or float(np.linalg.norm(node.pose.position - query.place)) <= query.radius_m)
    ]
    if not fits:
        return MemoryAnswer((), ())
    one_each = {node.label: node for node in fits}
    similar = {label: float(node.embedding @ vector) if query.text else 1.0 for label, node in one_each.items()}
    best = max(similar.values())
    chosen: list[SceneNode] = []
    for node in reversed(fits):
        if similar[node.label] < best - 1e-3:
            continue
        if all(np.linalg.norm(node.pose.position - other.pose.position) > APART_M for other in chosen):
            chosen.append(node)
            if len(chosen) == query.limit:
                break
    score = float(np.clip(best, 0.0, 1.0))
    return MemoryAnswer(tuple(chosen), (score,) * len(chosen))
