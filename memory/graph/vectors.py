"""The nodes nearest in meaning: an exact product for small memories, a usearch graph for large ones."""

from __future__ import annotations

import numpy as np
from usearch.index import Index

from engram.core.types import EMBEDDING_DIM
from engram.memory.storage.columns import NodeColumns

EXACT_ROWS = 20_000
"""Up to here one matrix product is faster than building and walking a graph."""


class VectorIndex:
    """Derived from the columns; brought up to date when it is asked (HNSW: Malkov and Yashunin, 2016)."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self._index: Index | None = None
        self._stale: set[int] = set()

    def touch(self, rows: set[int]) -> None:
        """Note that the embeddings of ``rows`` changed, came or went."""
        if self._index is not None:
            self._stale |= rows

    def bytes_used(self) -> int:
        """Return the RAM used by the graph [bytes]; 0 while an exact product does."""
        return 0 if self._index is None else int(self._index.memory_usage)

    def nearest(self, vector: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return rows in use (k,) and their cosines (k,), best first; k is ``count`` or all there are."""
        top = len(self._columns.text)
        if len(self._columns) <= EXACT_ROWS:
            cosine = self._columns.embedding[:top] @ vector
            rows = np.argpartition(-cosine, count)[:count] if top > count else np.arange(top)
            rows = rows[np.lexsort((rows, -cosine[rows]))]
            rows = rows[[self._columns.text[row] is not None for row in rows.tolist()]]
            return rows, cosine[rows]
        matches = self._graph().search(vector, count)
        rows = matches.keys.astype(np.int64)
        return rows, self._columns.embedding[rows] @ vector

    def _graph(self) -> Index:
        if self._index is None:
            self._index = Index(ndim=EMBEDDING_DIM, metric="ip", dtype="f16")
            self._stale = set(range(len(self._columns.text)))
        if self._stale:
            rows = np.array(sorted(self._stale), np.int64)
            known = rows[self._index.contains(rows)] if len(self._index) else rows[:0]
            if len(known):
                self._index.remove(known)
            text = self._columns.text
            live = rows[[row < len(text) and text[row] is not None for row in rows.tolist()]]
            self._index.add(live, self._columns.embedding[live])
            self._stale = set()
        return self._index
