"""Eviction learned by reward: ADD, UPDATE, DELETE or NOOP for every change, from what paid off on later queries.

In the spirit of Memory-R1 (Yan et al. 2025), small enough to run at every change: a linear score of how much each
entry is worth keeping, whose weights were found by policy search on recorded traces (benchmarks/eviction_training.py;
command, seed and traces stand in the weight file).
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from engram.core.arrays import checked
from engram.core.errors import InvalidInputError
from engram.memory.stores.short_term.eviction import EvictionPolicy, Write

FEATURES = (
    "write_age",  # log accesses since the last change, 1 = 16 capacities ago
    "read_age",  # log accesses since the last question, 1 = 16 capacities ago or never
    "reads",  # log of the questions, fading
    "writes",  # log of the changes, fading
    "label_reads",  # log share of the class in all questions
    "label_writes",  # log share of the class in all changes
    "novel",  # seen for the first time
    "absent",  # known to be gone
)
_HORIZON = 16
_LABELS = 1024


@dataclass(frozen=True)
class EvictionWeights:
    """The learned numbers: worth of an entry = features @ weights; below ``delete_below`` it goes at once."""

    weights: np.ndarray  # (8,) in the order of FEATURES
    delete_below: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", checked("EvictionWeights.weights", self.weights, (len(FEATURES),)))
        if not np.isfinite(self.delete_below):
            raise InvalidInputError(f"EvictionWeights.delete_below: {self.delete_below}, expected a finite number")


def shipped_weights() -> EvictionWeights:
    """Return the weights that come with the package."""
    stored = json.loads((files("engram.memory.stores.short_term") / "learned_eviction.json").read_text())
    return EvictionWeights(np.array([stored["weights"][name] for name in FEATURES]), stored["delete_below"])


@dataclass(slots=True)
class _Past:
    """What is known of a key, held or not; counts are in units of the access at which they were made."""

    label: str
    counts: np.ndarray  # (2,) reads, writes
    written: int = 0  # tick of the last write
    asked: int | None = None  # tick of the last read
    seen: int = 0  # writes ever
    absent: bool = False


class LearnedEviction(EvictionPolicy):
    """Keeps the entries of the highest worth; remembers the pasts of 8 times as many keys."""

    def __init__(self, capacity: int, weights: EvictionWeights) -> None:
        super().__init__(capacity)
        self.weights = weights
        self._horizon = _HORIZON * capacity
        self._tick = 0
        self._unit = 1.0  # grows with every access, so that older counts weigh less: half after one horizon
        self._pasts: OrderedDict[str, _Past] = OrderedDict()
        self._held: dict[str, _Past] = {}
        self._labels: OrderedDict[str, np.ndarray] = OrderedDict()  # (2,) reads, writes of each class
        self._totals = np.zeros(2)

    def write(self, write: Write) -> tuple[str, ...]:
        """Add or update the entry, and delete what is not worth keeping; return what is dropped, maybe the new one."""
        past = self._past(write.key, write.label)
        self._count(past, column=1)
        past.written, past.absent = self._tick, write.absent
        past.seen += 1
        self._held[write.key] = past
        keys = list(self._held)
        worth = self._worth()
        drop = {keys[i] for i in np.flatnonzero(worth < self.weights.delete_below)}
        if not drop and len(keys) > self.capacity:
            drop = {keys[int(np.argmin(worth))]}
        for key in drop:
            del self._held[key]
        return tuple(sorted(drop))

    def read(self, key: str, label: str = "") -> None:
        """Count the question for the key and its class."""
        past = self._past(key, label)
        self._count(past, column=0)
        past.asked = self._tick

    def forget(self, key: str) -> None:
        """Remove ``key`` and its past."""
        self._held.pop(key, None)
        self._pasts.pop(key, None)

    def state(self) -> dict[str, Any]:
        """Return the keys, the least worth first, and what is known of every key and class."""
        keys = list(self._held)
        pasts = [[k, p.label, *p.counts.tolist(), p.written, p.asked, p.seen, p.absent] for k, p in self._pasts.items()]
        return {
            "keys": [keys[i] for i in np.argsort(self._worth(), kind="stable")],
            "held": keys,
            "pasts": pasts,
            "labels": [[label, *counts.tolist()] for label, counts in self._labels.items()],
            "totals": self._totals.tolist(),
            "tick": self._tick,
            "unit": self._unit,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over pasts and counts."""
        self._pasts = OrderedDict(
            (key, _Past(label, np.array([reads, writes]), *rest)) for key, label, reads, writes, *rest in state["pasts"]
        )
        self._held = {key: self._pasts[key] for key in state["held"]}
        self._labels = OrderedDict((label, np.array(counts)) for label, *counts in state["labels"])
        self._totals, self._tick, self._unit = np.array(state["totals"]), state["tick"], state["unit"]

    def _past(self, key: str, label: str) -> _Past:
        """Return the past of ``key``, now the newest; the oldest of a key that is not held is forgotten."""
        past = self._pasts.pop(key, None) or _Past(label, np.zeros(2))
        past.label = label or past.label
        self._pasts[key] = past
        if len(self._pasts) > 8 * self.capacity:
            oldest = next((one for one in self._pasts if one not in self._held and one != key), None)
            if oldest is not None:
                del self._pasts[oldest]
        return past

    def _count(self, past: _Past, column: int) -> None:
        self._tick += 1
        self._unit *= 2 ** (1 / self._horizon)
        if self._unit > 1e9:
            self._rescale()
        shares = self._labels.pop(past.label, None)
        self._labels[past.label] = shares = np.zeros(2) if shares is None else shares
        if len(self._labels) > _LABELS:
            self._labels.popitem(last=False)
        for counts in (past.counts, shares, self._totals):
            counts[column] += self._unit

    def _rescale(self) -> None:
        for counts in (*(past.counts for past in self._pasts.values()), *self._labels.values(), self._totals):
            counts /= self._unit
        self._unit = 1.0

    def _worth(self) -> np.ndarray:
        """Return the worth (n,) of keeping each held entry now."""
        if not self._held:
            return np.zeros(0)
        pasts = self._held.values()
        written = np.array([self._tick - past.written for past in pasts])
        asked = np.array([self._horizon if past.asked is None else self._tick - past.asked for past in pasts])
        counts = np.array([past.counts for past in pasts]) / self._unit
        none = np.zeros(2)
        shares = np.array([self._labels.get(past.label, none) for past in pasts]) / np.maximum(self._totals, 1e-12)
        flags = np.array([(past.seen == 1, past.absent) for past in pasts], np.float64)
        ages = np.log1p(np.column_stack((written, asked))) / np.log1p(self._horizon)
        return np.hstack((ages, np.log1p(counts), np.log1p(50 * shares), flags)) @ self.weights.weights
