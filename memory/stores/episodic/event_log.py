"""The events of episodic memory in order of time, bounded, with what changed since it was last asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from engram.core.contracts import StoreState
from engram.core.types import EMBEDDING_DIM
from engram.memory.stores.episodic.episodes import Event
from engram.memory.stores.episodic.event_index import EventIndex, RecallConfig

_EVENTS_OF_A_NODE = 16
_EVENT_BYTES = 1500 + 3 * 4 * EMBEDDING_DIM
"""RAM of an event beside its words and ids; its vector counts thrice: here, in the index, and in the index's room."""


class EventLog:
    """Events by position and id, with the index over their vectors; holds at most ``capacity`` of them."""

    def __init__(self, capacity: int, recall: RecallConfig) -> None:
        self.capacity = capacity
        self.events: list[Event] = []
        self.index = EventIndex(recall)
        self._recall = recall
        self._position: dict[str, int] = {}
        self._of_node: dict[str, list[str]] = {}  # node id -> its last events
        self._changed: set[str] = set()
        self._removed: set[str] = set()

    def __contains__(self, key: object) -> bool:
        return key in self._position

    def event(self, key: str) -> Event:
        """Return the event with the id ``key``."""
        return self.events[self._position[key]]

    def append(self, event: Event) -> None:
        """Add the newest event; over capacity, neighbours are merged."""
        self._add(event)
        self._changed.add(event.id)
        if len(self.events) > self.capacity:
            self._merge(self.capacity)

    def restore(self, events: Iterable[Event]) -> None:
        """Restore stored events, oldest first: no change."""
        for event in events:
            self._add(event)

    def replace_last(self, event: Event) -> None:
        """Replace the newest event by its extension ``event``."""
        self.events[-1] = event
        self.index.replace(len(self.events) - 1, event.vector)
        self._link(event)
        self._changed.add(event.id)

    def shift(self, by_ns: int) -> None:
        """Move the times of all events."""
        self.events = [replace(one, start_ns=one.start_ns + by_ns, end_ns=one.end_ns + by_ns) for one in self.events]
        self._changed |= self._position.keys()

    def about(self, node_id: str) -> tuple[str, ...]:
        """Return the last events in which the object ``node_id`` changed."""
        return tuple(key for key in self._of_node.get(node_id, ()) if key in self._position)

    def bytes_used(self) -> int:
        """Return the RAM used by the events [bytes]."""
        words = sum(110 * len(one.sentences) + 80 * len(one.node_ids) for one in self.events)
        return words + _EVENT_BYTES * len(self.events)

    def shrink(self, budget: int) -> None:
        """Merge events until at most ``budget`` bytes are used; the newest stays."""
        while self.bytes_used() > budget and len(self.events) > 1:
            self._merge(len(self.events) - max(1, len(self.events) // 8))

    def state(self) -> StoreState:
        """Return the rows that changed and the ids that were removed since the last call."""
        rows = tuple(self.event(key).record() for key in sorted(self._changed))
        state = StoreState(rows, tuple(sorted(self._removed)))
        self._changed.clear()
        self._removed.clear()
        return state

    def _add(self, event: Event) -> None:
        self._position[event.id] = self.index.append(event.vector)
        self.events.append(event)
        self._link(event)

    def _link(self, event: Event) -> None:
        for node_id in event.node_ids:
            ids = self._of_node.setdefault(node_id, [])
            if event.id not in ids[-1:]:
                ids.append(event.id)
                del ids[:-_EVENTS_OF_A_NODE]

    def _merge(self, keep: int) -> None:
        """Merge an eighth of the events: similar neighbours within an episode; drop the oldest above ``keep``."""
        count = max(1, keep // 8)
        same = np.array([a.episode == b.episode for a, b in zip(self.events, self.events[1:], strict=False)])
        same[-1] = False  # the newest event may still be growing
        first = {int(i) for i in self.index.most_alike_neighbours(count, same)}
        kept = []
        for i, event in enumerate(self.events):
            if i in first:
                kept.append(event.merged(self.events[i + 1]))
                self._changed.add(event.id)
            elif i - 1 not in first:
                kept.append(event)
        kept = kept[-keep:]
        there = {event.id for event in kept}
        gone = self._position.keys() - there
        self._changed &= there
        self._removed |= gone
        self.events, self._position, self._of_node, self.index = [], {}, {}, EventIndex(self._recall)
        self.restore(kept)
