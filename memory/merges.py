"""Two nodes become one, and come apart again: every merge keeps what both were, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engram.core.errors import InvalidInputError
from engram.core.types import Record, SceneNode
from engram.memory.history import FOREVER, History
from engram.memory.records import node_as_json, node_from_json
from engram.memory.scene_graph import SceneGraph

MERGE_BYTES = 8000
"""RAM of a merge: two nodes with their embeddings, and its row in the store; tracemalloc."""


@dataclass(frozen=True)
class Merge:
    """One merge: ``kept`` went on, ``gone`` became part of it."""

    number: int
    stamp_ns: int
    evidence: str  # observation id that decided it
    kept: SceneNode  # as it was before
    kept_votes: Mapping[str, float]
    gone: SceneNode
    gone_votes: Mapping[str, float]
    undone: str = ""  # observation id, or who undid it; empty = it stands


class Merges:
    """The journal of merges, and what carries them out. The newest ``keep`` can be undone."""

    def __init__(self, keep: int = 200) -> None:
        self._journal: dict[int, Merge] = {}
        self._keep = keep
        self._next = 1
        self.changed: set[int] = set()
        self.forgotten: set[int] = set()

    def __iter__(self) -> Iterator[Merge]:
        """Iterate over the merges, oldest first."""
        return iter(self._journal.values())

    def standing(self) -> list[Merge]:
        """Return the merges that were not undone, oldest first."""
        return [merge for merge in self._journal.values() if not merge.undone]

    def merge(
        self, scene: SceneGraph, history: History, kept_id: str, gone_id: str, stamp_ns: int, evidence: str
    ) -> Merge:
        """Make ``gone_id`` part of ``kept_id``: the newer place and looks, the older name, all the sights.

        The caller removes the node ``gone_id`` from the graph.
        """
        columns = scene.columns
        kept_row, gone_row = scene.row(kept_id), scene.row(gone_id)
        kept, gone = columns.nodes([kept_row, gone_row])
        votes = [dict(columns.about(row).votes) for row in (kept_row, gone_row)]
        merge = Merge(self._next, stamp_ns, evidence, kept, votes[0], gone, votes[1])
        self._next += 1
        self._journal[merge.number] = merge
        self.changed.add(merge.number)
        for number in list(self._journal)[: max(0, len(self._journal) - self._keep)]:
            self._forget(number)
        newer = gone if gone.last_seen_ns >= kept.last_seen_ns else kept
        both = {label: votes[0].get(label, 0.0) + votes[1].get(label, 0.0) for label in votes[0] | votes[1]}
        earlier = min((kept, gone), key=lambda node: node.first_seen_ns)
        scene.put(
            replace(
                newer, id=kept_id, label=max(sorted(both), key=both.__getitem__) if both else newer.label,
                first_seen_ns=earlier.first_seen_ns, first_evidence=earlier.first_evidence,
                observations=kept.observations + gone.observations,
            ),
            both,
        )  # fmt: skip
        mine = history.retract(kept_id, stamp_ns, since_ns=gone.first_seen_ns)  # what is older stands as it is
        mine = [fact for fact in mine if fact.present or fact.valid_from < gone.first_seen_ns]  # not gone: it was there
        history.restate(mine + history.retract(gone_id, stamp_ns), kept_id, stamp_ns)
        return merge

    def undo(
        self, scene: SceneGraph, history: History, number: int, stamp_ns: int, evidence: str
    ) -> tuple[SceneNode, SceneNode]:
        """Take merge ``number`` back: the place and looks of today are those of ``gone``; ``kept`` is as it was.

        Facts from before the merge go back to whom they were of; later ones are of ``gone``, whose place it is.

        Raises:
            InvalidInputError: there is no such merge, it was undone, or its node is no more; lists what stands.
        """
        merge = self._journal.get(number)
        if merge is None or merge.undone or merge.kept.id not in scene.columns:
            valid = ", ".join(f"{one.number} ({one.gone.id} into {one.kept.id})" for one in self.standing()) or "(none)"
            raise InvalidInputError(f"merge {number}: not one that can be undone; valid: {valid}")
        today = scene.node(merge.kept.id)
        gone = replace(
            today, id=merge.gone.id, first_seen_ns=merge.gone.first_seen_ns,
            first_evidence=merge.gone.first_evidence,
            observations=max(1, today.observations - merge.kept.observations),
        )  # fmt: skip
        scene.put(gone, scene.columns.about(scene.row(merge.kept.id)).votes)
        scene.put(merge.kept, merge.kept_votes)
        begins = merge.gone.first_seen_ns
        facts = history.retract(merge.kept.id, stamp_ns, since_ns=begins - 1)
        before = sorted((fact for fact in facts if fact.valid_from < begins), key=lambda fact: fact.valid_from)
        if before:
            before[-1] = replace(before[-1], valid_to=FOREVER)
        history.restate(before, merge.kept.id, stamp_ns)
        history.restate([fact for fact in facts if fact.valid_from >= begins], merge.gone.id, stamp_ns)
        self._journal[number] = replace(merge, undone=evidence)
        self.changed.add(number)
        return merge.kept, gone

    def _forget(self, number: int) -> None:
        del self._journal[number]
        self.changed.discard(number)
        self.forgotten.add(number)

    def close(self, number: int, who: str) -> None:
        """Note that a merge does not stand any more; whoever calls has put the nodes right."""
        self._journal[number] = replace(self._journal[number], undone=who)
        self.changed.add(number)

    def bytes_used(self) -> int:
        """Return what the journal holds of RAM."""
        return MERGE_BYTES * len(self._journal)

    def shrink(self, budget: int) -> None:
        """Forget the oldest merges above ``budget`` bytes: they can be undone no longer."""
        for number in list(self._journal)[: max(0, len(self._journal) - budget // MERGE_BYTES)]:
            self._forget(number)

    # -- the store -----------------------------------------------------------------------------------------------

    def records(self) -> tuple[list[Record], list[str]]:
        """Return the records that changed and the keys that went since :meth:`forget_changes`."""
        changed = [Record(f"{number:09d}", _as_json(self._journal[number])) for number in sorted(self.changed)]
        return changed, [f"{number:09d}" for number in sorted(self.forgotten)]

    def forget_changes(self) -> None:
        """Everything up to now is durable."""
        self.changed, self.forgotten = set(), set()

    def restore(self, records: Sequence[Record]) -> None:
        """Take over stored merges."""
        found = [_from_json(record.data) for record in records]
        self._journal = {merge.number: merge for merge in sorted(found, key=lambda merge: merge.number)}
        self._next = max(self._journal, default=0) + 1


def places(merges: Sequence[Merge]) -> np.ndarray:
    """Return where the kept nodes were before (n, 3) m."""
    return np.array([merge.kept.pose.position for merge in merges]).reshape(-1, 3)


def _as_json(merge: Merge) -> dict[str, Any]:
    return {
        "number": merge.number, "stamp_ns": merge.stamp_ns, "evidence": merge.evidence, "undone": merge.undone,
        "kept": node_as_json(merge.kept, merge.kept_votes), "gone": node_as_json(merge.gone, merge.gone_votes),
    }  # fmt: skip


def _from_json(data: Mapping[str, Any]) -> Merge:
    kept, kept_votes = node_from_json(data["kept"])
    gone, gone_votes = node_from_json(data["gone"])
    return Merge(data["number"], data["stamp_ns"], data["evidence"], kept, kept_votes, gone, gone_votes, data["undone"])
