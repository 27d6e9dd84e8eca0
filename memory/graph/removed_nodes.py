"""Sizes of removed objects: their facts stay in the history, which has no sizes."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

import numpy as np

from engram.core.types import Record

_SIZE_M = 0.05
"""Edge of the box of what left without a size: with another robot's memory, or before sizes were kept [m]."""
_SIZE_BYTES = 500
"""RAM of a size, with its row in the store."""


class RemovedNodes:
    """Node ids of the past, each with the size that it had last."""

    def __init__(self) -> None:
        self._sizes: dict[str, np.ndarray | None] = {}
        self._changed: set[str] = set()
        self._forgotten: set[str] = set()

    def __contains__(self, node_id: object) -> bool:
        """Whether ``node_id`` left the graph."""
        return node_id in self._sizes

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids."""
        return iter(self._sizes)

    def add(self, node_id: str, size: np.ndarray | None = None) -> None:
        """Note that ``node_id`` left, (3,) m large; without a size, the one that is known of it stays."""
        if size is not None:
            self._sizes[node_id] = np.array(size, np.float64)
            self._changed.add(node_id)
            self._forgotten.discard(node_id)
        else:
            self._sizes.setdefault(node_id, None)

    def discard(self, node_id: str) -> None:
        """Note that ``node_id`` is back, or not even a fact knows it any more."""
        if self._sizes.pop(node_id, None) is not None:
            self._changed.discard(node_id)
            self._forgotten.add(node_id)

    def begin(self, node_ids: Iterable[str]) -> None:
        """Have just ``node_ids``, with the sizes that are known of them."""
        wanted = dict.fromkeys(node_ids)
        self.keep(wanted)
        self._sizes = {**wanted, **self._sizes}

    def keep(self, known: Container[str]) -> None:
        """Forget all but ``known`` ids."""
        for node_id in [one for one in self._sizes if one not in known]:
            self.discard(node_id)

    def size(self, node_id: str) -> np.ndarray:
        """Return how large it was when it was last in the graph (3,) m."""
        size = self._sizes.get(node_id)
        return np.full(3, _SIZE_M) if size is None else size

    def bytes_used(self) -> int:
        """Return the RAM used by the sizes [bytes]."""
        return _SIZE_BYTES * sum(size is not None for size in self._sizes.values())

    # -- the store -----------------------------------------------------------------------------------------------

    def records(self) -> tuple[list[Record], list[str]]:
        """Return the records that changed and the keys that were removed since :meth:`forget_changes`."""
        changed = [Record(node_id, {"size": self.size(node_id).tolist()}) for node_id in sorted(self._changed)]
        return changed, sorted(self._forgotten)

    def forget_changes(self) -> None:
        """Mark all changes as durable."""
        self._changed, self._forgotten = set(), set()

    def restore(self, records: Sequence[Record]) -> None:
        """Restore stored sizes."""
        self._sizes = {record.key: np.array(record.data["size"]) for record in records}
