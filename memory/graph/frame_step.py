"""The changes of one frame, collected by the parts of the tracker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from engram.core.types import GraphEvent
from engram.memory.storage.columns import VISIBLE, NodeColumns


@dataclass
class Step:
    """Changes made by one frame."""

    stamp_ns: int
    camera: str
    evidence: str
    changed: dict[int, None] = field(default_factory=dict)  # rows, in order
    sighted: list[int] = field(default_factory=list)  # rows seen in this frame
    spawned: set[int] = field(default_factory=set)  # rows of objects that are new in this frame
    gone: list[tuple[str, int]] = field(default_factory=list)  # id and row of nodes that are no more
    events: list[GraphEvent] = field(default_factory=list)
    taken: set[int] = field(default_factory=set)  # rows that a merge has used
    shifted_ns: int = 0  # how far every earlier stamp moved
    renamed: dict[int, str] = field(default_factory=dict)  # row -> what it was called until this frame

    def change(self, rows: Iterable[int]) -> None:
        """Note that ``rows`` changed."""
        self.changed.update(dict.fromkeys(rows))

    def see(self, columns: NodeColumns, rows: np.ndarray) -> None:
        """Note that the objects of ``rows`` (n,) were seen in this frame, where their columns say by now."""
        columns.state[rows] = VISIBLE
        columns.first_ns[rows] = np.minimum(columns.first_ns[rows], self.stamp_ns)
        columns.last_ns[rows] = np.maximum(columns.last_ns[rows], self.stamp_ns)
        columns.sights[rows] += 1
        columns.moved(rows.tolist())
        self.change(rows.tolist())
        self.sighted += rows.tolist()
