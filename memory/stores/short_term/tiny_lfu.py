"""W-TinyLFU: a small LRU window before a segmented LRU whose door a frequency sketch guards.

Einziger, Friedman, Manes: TinyLFU: A Highly Efficient Cache Admission Policy (ACM TOS 2017). One sweep over objects
that nobody asks for passes through the window and leaves the main part alone.
"""

from __future__ import annotations

import base64
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from engram.memory.stores.short_term.eviction import EvictionPolicy, Write

_MIX = np.array([0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F], np.uint64)


class CountMinSketch:
    """How often a key came lately: 4 rows of counters up to 15, halved after ``sample`` additions (aging)."""

    def __init__(self, width: int, sample: int) -> None:
        self._bits = max(3, int(np.ceil(np.log2(width))))
        self._rows = np.zeros((4, 1 << self._bits), np.uint8)
        self._sample = sample
        self._added = 0

    def add(self, key: str) -> None:
        """Count ``key``: only its smallest counters grow (conservative update)."""
        cells = self._cells(key)
        values = self._rows[np.arange(4), cells]
        smallest = values.min()
        if smallest < 15:
            grown = values == smallest
            self._rows[np.arange(4)[grown], cells[grown]] += 1
        self._added += 1
        if self._added >= self._sample:
            self._rows >>= 1
            self._added //= 2

    def estimate(self, key: str) -> int:
        """Return the count of ``key``: never too low since the last halving, too high where four cells collide."""
        return int(self._rows[np.arange(4), self._cells(key)].min())

    def state(self) -> dict[str, Any]:
        """Return the counters as JSON values."""
        return {"rows": base64.b64encode(self._rows.tobytes()).decode(), "added": self._added}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over counters of a sketch of the same width."""
        cells = np.frombuffer(base64.b64decode(state["rows"]), np.uint8)
        self._rows, self._added = cells.reshape(self._rows.shape).copy(), state["added"]

    def _cells(self, key: str) -> np.ndarray:
        # crc32, not hash(): the same key must fall into the same cells in every process
        spread = np.uint64(zlib.crc32(key.encode())) * _MIX & np.uint64(0xFFFFFFFF)
        return (spread >> np.uint64(32 - self._bits)).astype(np.int64)


@dataclass(frozen=True)
class TinyLFUConfig:
    """Shares of the paper's evaluation; counters as in Caffeine."""

    window_share: float = 0.01
    """Share of the capacity that is the window; at least one key."""
    protected_share: float = 0.8
    """Share of the main part for keys that came twice."""
    sample_factor: int = 10
    """The sketch halves after this many accesses for each key of the capacity."""


class WTinyLFU(EvictionPolicy):
    """Window, probation and protected queues, each least recently used first."""

    def __init__(self, capacity: int, config: TinyLFUConfig | None = None) -> None:
        super().__init__(capacity)
        config = config or TinyLFUConfig()
        self._window_size = max(1, round(capacity * config.window_share))
        self._main_size = capacity - self._window_size
        self._protected_size = int(self._main_size * config.protected_share)
        self._sketch = CountMinSketch(8 * capacity, config.sample_factor * capacity)
        self._window: OrderedDict[str, None] = OrderedDict()
        self._probation: OrderedDict[str, None] = OrderedDict()
        self._protected: OrderedDict[str, None] = OrderedDict()

    def write(self, write: Write) -> tuple[str, ...]:
        """Let the key in by the window; who leaves it competes with the main part's victim by frequency."""
        self._sketch.add(write.key)
        if self._renew(write.key):
            return ()
        self._window[write.key] = None
        if len(self._window) <= self._window_size:
            return ()
        candidate = self._window.popitem(last=False)[0]
        if len(self._probation) + len(self._protected) < self._main_size:
            self._probation[candidate] = None
            return ()
        victims = self._probation or self._protected
        if not victims:  # a capacity of one: there is no main part
            return (candidate,)
        victim = next(iter(victims))
        if self._sketch.estimate(candidate) <= self._sketch.estimate(victim):
            return (candidate,)
        del victims[victim]
        self._probation[candidate] = None
        return (victim,)

    def read(self, key: str, label: str = "") -> None:
        """Count the question; a held key is renewed."""
        self._sketch.add(key)
        self._renew(key)

    def forget(self, key: str) -> None:
        """Remove ``key``; the sketch ages by itself."""
        for queue in (self._window, self._probation, self._protected):
            queue.pop(key, None)

    def state(self) -> dict[str, Any]:
        """Return window, probation and protected keys, how many are in each, and the sketch."""
        queues = (self._window, self._probation, self._protected)
        return {
            "keys": [key for queue in queues for key in queue],
            "lengths": [len(queue) for queue in queues],
            "sketch": self._sketch.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over queues and counters."""
        keys = iter(state["keys"])
        queues = [OrderedDict.fromkeys(next(keys) for _ in range(length)) for length in state["lengths"]]
        self._window, self._probation, self._protected = queues
        self._sketch.restore(state["sketch"])

    def _renew(self, key: str) -> bool:
        for queue in (self._window, self._protected):
            if key in queue:
                queue.move_to_end(key)
                return True
        if key not in self._probation:
            return False
        del self._probation[key]
        self._protected[key] = None
        if len(self._protected) > self._protected_size:
            self._probation[self._protected.popitem(last=False)[0]] = None
        return True
