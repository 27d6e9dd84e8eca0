"""What two memories disagree on after a merge: which nodes are one object. Kept by robot until someone decides."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from engram.core.types import Record

_CONFLICT_BYTES = 500
"""RAM of a conflict, with its share of a row in the store; tracemalloc."""


@dataclass(frozen=True)
class Conflict:
    """Two nodes that may be one object."""

    kind: str  # "moved": at two places, under one name; "named": at one place, under two names
    ours: str  # node id
    theirs: str  # node id
    words: str  # for people, with both ids


class Conflicts:
    """The conflicts that the merge with each robot left, but for those that were settled."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[Conflict, ...]] = {}  # robot -> conflicts
        self.changed: set[str] = set()

    def keep(self, robot: str, conflicts: Sequence[Conflict]) -> None:
        """Replace the conflicts with the memory of ``robot``; none at all forgets it."""
        if conflicts or robot in self._of:
            self._of[robot] = tuple(conflicts)
            self.changed.add(robot)

    def undecided(self, known: Container[str]) -> list[Conflict]:
        """Return the conflicts whose nodes are both ``known`` still: one that became part of another is not."""
        return [one for kept in self._of.values() for one in kept if one.ours in known and one.theirs in known]

    def settle(self, a: str, b: str) -> int:
        """Forget the conflicts between the nodes ``a`` and ``b``, in either order; return how many there were."""
        count = 0
        for robot, kept in self._of.items():
            left = tuple(one for one in kept if {one.ours, one.theirs} != {a, b})
            if len(left) < len(kept):
                self.keep(robot, left)
                count += len(kept) - len(left)
        return count

    def bytes_used(self) -> int:
        """Return the RAM used by the conflicts [bytes]."""
        return _CONFLICT_BYTES * sum(map(len, self._of.values()))

    # -- the store -----------------------------------------------------------------------------------------------

    def records(self) -> tuple[list[Record], list[str]]:
        """Return the records that changed and the keys that were removed since :meth:`forget_changes`."""
        full = [robot for robot in sorted(self.changed) if self._of[robot]]
        fields = {robot: [[c.kind, c.ours, c.theirs, c.words] for c in self._of[robot]] for robot in full}
        return [Record(robot, {"conflicts": fields[robot]}) for robot in full], sorted(self.changed - set(full))

    def forget_changes(self) -> None:
        """Mark all changes as durable."""
        self.changed = set()

    def restore(self, records: Sequence[Record]) -> None:
        """Restore stored conflicts."""
        self._of = {record.key: tuple(Conflict(*fields) for fields in record.data["conflicts"]) for record in records}
