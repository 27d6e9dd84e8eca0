"""Events and episodes of episodic memory, and their rows on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from engram.core.types import GraphEvent, Record
from engram.memory.graph.surroundings import summary

RUNNING, ABANDONED = "running", "abandoned"
UNKNOWN_WORTH = 0.5
"""Worth of what belongs to no task, or to one whose end says nothing."""
_SENTENCES = 12
_NODES = 64


@dataclass(frozen=True)
class Event:
    """A stretch of time in which the scene changed in one way."""

    id: str
    start_ns: int
    end_ns: int
    place: np.ndarray  # (3,) m, base_link, mean of where things changed
    sentences: tuple[str, ...]
    node_ids: tuple[str, ...]
    evidence: tuple[str, ...]  # observation ids, first and last
    surprise: float  # nats, at its beginning
    weight: int  # changes it stands for, and one for the task it was part of
    episode: str  # id; empty = outside of any task
    vector: np.ndarray  # (384,) float32, unit length: what it was about

    @property
    def text(self) -> str:
        """What happened, in words."""
        return summary(self.sentences)

    def extended(self, event: GraphEvent, sentence: str, embedding: np.ndarray | None) -> Event:
        """Return this event with one more change; ``embedding`` (384,) of the object that changed."""
        n = self.weight
        return replace(
            self,
            end_ns=max(self.end_ns, event.stamp_ns),
            place=(self.place * n + event.place) / (n + 1),
            sentences=_once((*self.sentences, sentence))[-_SENTENCES:],
            node_ids=_once((*self.node_ids, event.node_id))[-_NODES:],
            evidence=_ends((*self.evidence, event.evidence)),
            weight=n + 1,
            vector=self.vector if embedding is None else unit(self.vector * n + embedding),
        )

    def merged(self, later: Event) -> Event:
        """Return this event and its neighbour in time as one."""
        n, m = self.weight, later.weight
        return replace(
            self,
            end_ns=max(self.end_ns, later.end_ns),
            place=(self.place * n + later.place * m) / (n + m),
            sentences=_once((*self.sentences, *later.sentences))[-_SENTENCES:],
            node_ids=_once((*self.node_ids, *later.node_ids))[-_NODES:],
            evidence=_ends((*self.evidence, *later.evidence)),
            surprise=max(self.surprise, later.surprise),
            weight=n + m,
            vector=unit(self.vector * n + later.vector * m),
        )

    def record(self) -> Record:
        """Return the row on disk."""
        return Record(self.id, _json(asdict(self)), self.vector)

    @classmethod
    def of(cls, record: Record) -> Event:
        """Return the value stored in a row."""
        data = dict(record.data)
        for name in ("sentences", "node_ids", "evidence"):
            data[name] = tuple(data[name])
        data["place"] = np.array(data["place"], np.float64)
        return cls(id=record.key, vector=_vector(record), **data)


@dataclass(frozen=True)
class Episode:
    """One task from its instruction to its outcome."""

    id: str
    task: str
    instruction: str
    start_ns: int
    end_ns: int
    outcome: str  # running, succeeded, failed, stopped, ...
    return_: float | None  # 0..1; None = not ended, or its end says nothing
    policy_version: str
    memory_ids: tuple[str, ...]  # what the policy had read
    events: int
    vector: np.ndarray  # (384,) float32 of the instruction

    @property
    def text(self) -> str:
        """The task in words."""
        took = (self.end_ns - self.start_ns) / 1e9
        words = f"{self.task or 'task'} {self.instruction!r}"
        return f"{words} is {self.outcome}" if self.outcome == "running" else f"{words} {self.outcome} in {took:.0f} s"

    @property
    def worth(self) -> float:
        """How high it ranks and how long it is kept (0..1): half its return, half :data:`UNKNOWN_WORTH`."""
        return UNKNOWN_WORTH if self.return_ is None else (UNKNOWN_WORTH + self.return_) / 2

    @property
    def number(self) -> int:
        """How many episodes there had been when it began, with itself."""
        return int(self.id.rpartition("_")[2])

    def record(self) -> Record:
        """Return the row on disk."""
        return Record(self.id, _json(asdict(self)), self.vector)

    @classmethod
    def of(cls, record: Record) -> Episode:
        """Return the value stored in a row."""
        data = dict(record.data) | {"memory_ids": tuple(record.data["memory_ids"])}
        return cls(id=record.key, vector=_vector(record), **data)


@dataclass(frozen=True)
class Past:
    """What episodic memory holds, as answers read it."""

    episodes: tuple[Episode, ...]  # oldest first
    events: tuple[Event, ...]  # oldest first
    issued: int  # episodes there ever were: their numbers count up from 1


def unit(vector: np.ndarray) -> np.ndarray:
    """Return ``vector`` at unit length as float32; zeros stay zeros."""
    return (vector / max(float(np.linalg.norm(vector)), 1e-9)).astype(np.float32)


def _json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields as JSON values, without those that a record keeps beside them."""
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in plain.items()
        if name not in ("id", "vector")
    }


def _vector(record: Record) -> np.ndarray:
    return np.zeros(384, np.float32) if record.vector is None else record.vector


def _once(items: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))


def _ends(ids: Sequence[str]) -> tuple[str, ...]:
    known = [one for one in ids if one]
    return _once((known[0], known[-1])) if known else ()
