"""What was acknowledged, and what of it is still there: facts of the robot's memory, steps of experience. No ROS."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from engram.core.types import Transition
from engram.learning.experience.codec import decode

Identity = tuple[str, str, int]
"""Robot, spool, number: what names one step of experience."""


class MemoryLedger:
    """Facts that a memory node told, and those of them that it said are durable.

    A fact is a node of the scene graph with the number of times it was seen. Changes carry a sequence number; "durable
    sequence" in the diagnostics acknowledges all up to one. What was told beyond that may go with a killed process.
    A node that is told apart from another gives its sightings back: a count that falls under what the same process had
    told is believed. One that a process begins with is not: what is missing there was lost.
    """

    def __init__(self) -> None:
        self.acknowledged: dict[str, int] = {}  # node id -> times seen
        self._told: dict[int, tuple[dict[str, int], tuple[str, ...], set[str]]] = {}  # the last: those told apart
        self._boot_id = ""
        self._of_boot: dict[str, int] = {}  # node id -> times seen, as this process told it last

    def told(self, boot_id: str, sequence: int, nodes: Mapping[str, int], deleted: Iterable[str] = ()) -> None:
        """Take in a change: ``nodes`` are ids and how often each was seen."""
        if boot_id != self._boot_id:
            self._forget_undecided()
            self._boot_id, self._of_boot = boot_id, {}
        before = {name: self._of_boot.get(name, 0) for name in nodes}
        apart = {one for one, n in nodes.items() if n < before[one] and before[one] >= self.acknowledged.get(one, 0)}
        self._of_boot |= nodes
        self._told[sequence] = (dict(nodes), tuple(deleted), apart)

    def durable(self, sequence: int) -> None:
        """Take in that everything up to ``sequence`` survives a crash."""
        for number in sorted(n for n in self._told if n <= sequence):
            nodes, deleted, apart = self._told.pop(number)
            for name, seen in nodes.items():
                self.acknowledged[name] = seen if name in apart else max(seen, self.acknowledged.get(name, 0))
            for name in deleted:
                self.acknowledged.pop(name, None)

    def _forget_undecided(self) -> None:
        """Expect nothing of what a killed process told and never acknowledged: deletions may be durable or not, and so
        may what was told apart."""
        for nodes, deleted, apart in self._told.values():
            for name in deleted:
                self.acknowledged.pop(name, None)
            for name in apart & self.acknowledged.keys():
                self.acknowledged[name] = min(nodes[name], self.acknowledged[name])
        self._told = {}

    def lost(self, nodes: Mapping[str, int]) -> list[str]:
        """Return the acknowledged facts that ``nodes`` of the memory, opened again after it was killed, lack."""
        self._forget_undecided()
        return [
            f"{name}: seen {seen} times, now {nodes.get(name, 0)}"
            for name, seen in self.acknowledged.items()
            if nodes.get(name, 0) < seen
        ]


def kept_experience(spool: Path, store: Path) -> dict[Identity, Any]:
    """Return every step of experience in the robot's spool and the learner's store: identity -> what it is about."""
    kept = {}
    for file, table in ((spool, "spool"), (store, "transitions")):
        if not file.exists():
            continue
        with closing(sqlite3.connect(file)) as database:
            for (payload,) in database.execute(f"SELECT payload FROM {table}"):
                one = decode(payload)
                kept[one.robot_id, one.boot_id, one.sequence] = _about(one)
    return kept


def _about(one: Transition) -> tuple[Any, ...]:
    """Return what tells two steps apart whatever their numbers are."""
    return one.episode, one.step, one.stamp_ns, one.instruction, one.state.tobytes()


def lost_and_doubled(sent: Iterable[Identity], kept: Mapping[Identity, Any]) -> tuple[list[Identity], list[Any]]:
    """Return the steps that were sent and are nowhere, and those that are there under two numbers."""
    count = Counter(kept.values())
    return sorted({*sent} - {*kept}), [about for about, n in count.items() if n > 1]
