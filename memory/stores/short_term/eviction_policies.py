"""Six ways to choose which keys a bounded memory holds, by name; the four that are a queue or a count are here."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from engram.core.errors import unknown_name
from engram.memory.stores.short_term.eviction import EvictionPolicy, Write
from engram.memory.stores.short_term.learned_eviction import LearnedEviction, shipped_weights
from engram.memory.stores.short_term.tiny_lfu import WTinyLFU


class OrderedPolicy(EvictionPolicy):
    """Drops the head of one queue; what moves a key to its tail makes it newest, FIFO or LRU."""

    def __init__(self, capacity: int, on_write: bool, on_read: bool) -> None:
        super().__init__(capacity)
        self._on_write, self._on_read = on_write, on_read
        self._order: OrderedDict[str, None] = OrderedDict()

    def write(self, write: Write) -> tuple[str, ...]:
        """Append, or renew, ``write.key``."""
        if write.key in self._order:
            if self._on_write:
                self._order.move_to_end(write.key)
            return ()
        self._order[write.key] = None
        return (self._order.popitem(last=False)[0],) if len(self._order) > self.capacity else ()

    def read(self, key: str, label: str = "") -> None:
        """Renew ``key`` where reading counts."""
        if self._on_read and key in self._order:
            self._order.move_to_end(key)

    def forget(self, key: str) -> None:
        """Remove ``key``."""
        self._order.pop(key, None)

    def state(self) -> dict[str, Any]:
        """Return the queue."""
        return {"keys": list(self._order)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a queue."""
        self._order = OrderedDict.fromkeys(state["keys"])


class LFU(EvictionPolicy):
    """Drops the key written and read least often since it came in; among equals the one touched longest ago."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._count: OrderedDict[str, int] = OrderedDict()  # least recently touched first

    def write(self, write: Write) -> tuple[str, ...]:
        """Count the change; a new key displaces another, never itself."""
        if write.key in self._count:
            self._touch(write.key)
            return ()
        victims = (min(self._count, key=self._count.__getitem__),) if len(self._count) >= self.capacity else ()
        for victim in victims:
            del self._count[victim]
        self._count[write.key] = 1
        return victims

    def read(self, key: str, label: str = "") -> None:
        """Count the question if ``key`` is held."""
        if key in self._count:
            self._touch(key)

    def forget(self, key: str) -> None:
        """Remove ``key`` and its count."""
        self._count.pop(key, None)

    def state(self) -> dict[str, Any]:
        """Return the keys by count, and the counts in the order of the last touch."""
        return {"keys": sorted(self._count, key=self._count.__getitem__), "counts": list(self._count.items())}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over counts."""
        self._count = OrderedDict((key, count) for key, count in state["counts"])

    def _touch(self, key: str) -> None:
        self._count[key] += 1
        self._count.move_to_end(key)


def make_eviction(name: str, capacity: int) -> EvictionPolicy:
    """Return the policy called ``name``; raises UnknownNameError with those there are."""
    if name not in EVICTIONS:
        raise unknown_name("eviction policy", name, EVICTIONS)
    return EVICTIONS[name](capacity)


EVICTIONS: dict[str, Callable[[int], EvictionPolicy]] = {
    "newest": lambda capacity: OrderedPolicy(capacity, on_write=True, on_read=False),  # KARMA's released code
    "fifo": lambda capacity: OrderedPolicy(capacity, on_write=False, on_read=False),
    "lru": lambda capacity: OrderedPolicy(capacity, on_write=True, on_read=True),
    "lfu": LFU,
    "w_tiny_lfu": WTinyLFU,
    "learned": lambda capacity: LearnedEviction(capacity, shipped_weights()),
}
