"""Short-term memory: the recent changes of objects, bounded, with a choice of what to drop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from engram.core.contracts import MemoryStore, StoreState
from engram.core.questions import Selection
from engram.core.types import EMBEDDING_DIM, Evidence, GraphEvent, GraphUpdate, Record
from engram.memory.graph.surroundings import Surroundings, describe
from engram.memory.stores.short_term.eviction import Write
from engram.memory.stores.short_term.eviction_policies import make_eviction

_NO_CHANGE = ("merged", "split", "deleted")
_POLICY = "eviction policy"  # the key of its record: no object is called so
_ENTRY_BYTES = 1000
"""RAM of an entry beside its vector and words, and of what the policy knows of it and of 7 keys that went."""


@dataclass(frozen=True)
class ShortTermConfig:
    """Size and eviction."""

    capacity: int = 100
    """Objects whose last change is kept; KARMA's released code keeps 100."""
    eviction: str = "learned"
    """newest, fifo, lru, lfu, w_tiny_lfu or learned; ``engram bench eviction`` compares them."""
    half_distance_m: float = 1.0
    """A change this far from the place of a question scores half [m]."""
    budget_mb: float = 12.0
    """RAM [MB]; above it entries go as they do above ``capacity``."""


@dataclass(frozen=True, slots=True)
class RecentChange:
    """The last change of one object."""

    node_id: str
    label: str
    text: str
    stamp_ns: int
    place: np.ndarray  # (3,) m, base_link
    evidence: str  # observation id
    vector: np.ndarray | None  # (384,) of the object
    kinds: tuple[str, ...] = ()  # what happened to it since it is held, each kind once, the last one last

    def record(self) -> Record:
        """Return the row on disk."""
        data = {
            "label": self.label,
            "text": self.text,
            "stamp_ns": self.stamp_ns,
            "place": self.place.tolist(),
            "evidence": self.evidence,
            "kinds": list(self.kinds),
        }
        return Record(self.node_id, data, self.vector)

    @classmethod
    def of(cls, record: Record) -> RecentChange:
        """Return the value stored in a row."""
        data = record.data
        place = np.array(data["place"], np.float64)
        kinds = tuple(data.get("kinds", ()))  # rows of earlier versions have none
        return cls(
            record.key, data["label"], data["text"], data["stamp_ns"], place, data["evidence"], record.vector, kinds
        )  # fmt: skip


@dataclass(frozen=True)
class Recent:
    """What short-term memory holds, as answers read it."""

    changes: tuple[RecentChange, ...]  # newest first
    dropped_ns: int | None  # stamp of the newest change that found no room or had to go; None = there was none


class ShortTermMemory(MemoryStore):
    """The last change of at most ``capacity`` objects; the eviction policy learns from changes and from questions."""

    name = "short_term"

    def __init__(self, config: ShortTermConfig | None = None) -> None:
        self.config = config or ShortTermConfig()
        self._policy = make_eviction(self.config.eviction, self.config.capacity)
        self._surroundings = Surroundings()
        self._entries: dict[str, RecentChange] = {}
        self._changed: set[str] = set()
        self._removed: set[str] = set()
        self._used = False  # whether the policy learnt something since the last state
        self._dropped_ns: int | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._entries

    def recent(self) -> Recent:
        """Return what it holds, for answers on another thread."""
        held = sorted(self._entries.values(), key=lambda one: (-one.stamp_ns, one.node_id))
        return Recent(tuple(held), self._dropped_ns)

    def update(self, change: GraphUpdate, stamp_ns: int) -> None:
        """Remember every event of ``change``; entries of removed nodes are dropped."""
        self._surroundings.follow(change)
        if change.shifted_ns:
            shifted = {k: replace(one, stamp_ns=one.stamp_ns + change.shifted_ns) for k, one in self._entries.items()}
            self._entries = shifted
            if self._dropped_ns is not None:
                self._dropped_ns += change.shifted_ns
            self._changed |= shifted.keys()
        for event in change.events:
            if event.kind == "deleted":
                self._forget(event.node_id)
            elif event.kind == "merged":
                self._forget(event.other_id)
            if event.kind not in _NO_CHANGE:
                self._write(event)
        for node_id in change.deleted_nodes:
            self._forget(node_id)

    def asked(self, node_id: str, label: str) -> None:
        """Learn that a question was about this object, whether its change is held or not."""
        self._policy.read(node_id, label)
        self._used = True

    def recall(self, selection: Selection) -> tuple[Evidence, ...]:
        """Return the changes that fit: cosine of the object x nearness, newest first among equals."""
        held = list(self._entries.values())
        if _filters(selection):
            held = [one for one in held if self._fits(one, selection)]
        scores = self._scores(held, selection)
        best = sorted(range(len(held)), key=lambda i: (-scores[i], -held[i].stamp_ns, held[i].node_id))[
            : selection.limit
        ]
        return tuple(
            Evidence(
                source=self.name,
                text=held[i].text,
                score=float(scores[i]),
                stamp_ns=held[i].stamp_ns,
                ids=(held[i].evidence,) if held[i].evidence else (),
                node_id=held[i].node_id,
                place=held[i].place,
            )
            for i in best
        )

    def state(self) -> StoreState:
        """Return the entries that changed or went since the last call, and what the policy learnt."""
        self._shrink()
        rows = [self._entries[key].record() for key in sorted(self._changed)]
        if self._used:
            about = {"name": self.config.eviction, "capacity": self.config.capacity, "dropped_ns": self._dropped_ns}
            rows.append(Record(_POLICY, {**about, **self._policy.state()}))
        state = StoreState(tuple(rows), tuple(sorted(self._removed)))
        self._changed.clear()
        self._removed.clear()
        self._used = False
        return state

    def restore(self, records: Sequence[Record]) -> None:
        """Restore stored entries and the policy; one of another kind or capacity begins with the entries alone."""
        entries = {record.key: RecentChange.of(record) for record in records if record.key != _POLICY}
        policy = next((record.data for record in records if record.key == _POLICY), None)
        if policy is not None:  # a row of an earlier version does not say what it dropped: it may be anything
            newest = max((one.stamp_ns for one in entries.values()), default=None)
            self._dropped_ns = policy.get("dropped_ns", newest)
        if policy is not None and (policy["name"], policy["capacity"]) == (self.config.eviction, self.config.capacity):
            self._policy.restore(policy)
            held = self._policy.keys()
            self._entries = {key: entries[key] for key in held if key in entries}
            return
        for entry in sorted(entries.values(), key=lambda one: (one.stamp_ns, one.node_id)):
            self._entries[entry.node_id] = entry
            for key in self._policy.write(Write(entry.node_id, entry.label)):
                self._evict(key)
        self._changed.clear()

    def bytes_used(self) -> int:
        """Return the RAM used by the entries [bytes]."""
        vectors = sum(0 if one.vector is None else one.vector.nbytes for one in self._entries.values())
        return vectors + sum(_ENTRY_BYTES + len(one.text) for one in self._entries.values())

    def _shrink(self) -> None:
        """Evict entries until the budget holds."""
        excess = self.bytes_used() - self.config.budget_mb * (1 << 20)
        for key in self._policy.keys() if excess > 0 else ():
            if excess <= 0:
                break
            excess -= _ENTRY_BYTES + EMBEDDING_DIM * 4
            self._policy.forget(key)
            self._used = True
            self._evict(key)

    def _write(self, event: GraphEvent) -> None:
        vector = self._surroundings.embedding(event.node_id)
        before = self._entries.get(event.node_id)
        if vector is None and before is not None:
            vector = before.vector
        text = describe(event, self._surroundings.support(event.node_id)[1])
        earlier = () if before is None else (kind for kind in before.kinds if kind != event.kind)
        self._entries[event.node_id] = RecentChange(
            event.node_id, event.label, text, event.stamp_ns, event.place, event.evidence, vector,
            (*earlier, event.kind),
        )  # fmt: skip
        self._changed.add(event.node_id)
        self._removed.discard(event.node_id)
        self._used = True
        for key in self._policy.write(Write(event.node_id, event.label, event.kind == "absent")):
            self._evict(key)

    def _evict(self, node_id: str) -> None:
        """Drop an entry for want of room, and note that its change is missing."""
        if node_id in self._entries:
            gone_ns = self._entries[node_id].stamp_ns
            self._dropped_ns = gone_ns if self._dropped_ns is None else max(self._dropped_ns, gone_ns)
        self._drop(node_id)

    def _forget(self, node_id: str) -> None:
        self._policy.forget(node_id)
        self._used = True
        self._drop(node_id)

    def _drop(self, node_id: str) -> None:
        if self._entries.pop(node_id, None) is not None:
            self._changed.discard(node_id)
            self._removed.add(node_id)

    def _fits(self, entry: RecentChange, selection: Selection) -> bool:
        if selection.believed_ns is not None and entry.stamp_ns > selection.believed_ns:
            return False
        if selection.valid_ns is not None and not selection.valid_ns[0] <= entry.stamp_ns <= selection.valid_ns[1]:
            return False
        asked = selection.relation or selection.target
        if asked and not self._surroundings.stands(entry.node_id, selection.relation, selection.target):
            return False
        return selection.place is None or float(np.linalg.norm(entry.place - selection.place)) <= selection.radius_m

    def _scores(self, held: Sequence[RecentChange], selection: Selection) -> np.ndarray:
        scores = np.ones(len(held))
        if selection.vector is not None and held:
            blank = np.zeros_like(selection.vector)
            vectors = np.array([blank if one.vector is None else one.vector for one in held])
            scores = np.clip(vectors @ selection.vector, 0.0, 1.0).astype(np.float64)
        if selection.place is not None and held:
            apart = np.linalg.norm(np.array([one.place for one in held]) - selection.place, axis=1)
            scores = scores * self.config.half_distance_m / (self.config.half_distance_m + apart)
        return scores


def _filters(selection: Selection) -> bool:
    asked = (selection.valid_ns, selection.believed_ns, selection.place)
    return any(one is not None for one in asked) or bool(selection.relation or selection.target)
