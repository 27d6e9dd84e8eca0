"""Reversible merges: each keeps both nodes as they were, and the evidence for the merge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engram.core.errors import InvalidInputError
from engram.core.types import Record, SceneNode
from engram.memory.graph.scene_graph import SceneGraph
from engram.memory.storage.fact_columns import FOREVER, Fact
from engram.memory.storage.history import History
from engram.memory.storage.records import node_as_json, node_from_json

MERGE_BYTES = 8000
"""RAM of a merge: two nodes with their embeddings, and its row in the store; tracemalloc."""
FEW_VOTES = 1e-6
"""Votes that are left by rounding."""


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
    """The journal of merges, and what carries them out. The newest ``keep`` can be undone.

    Those by which an object took in what another robot knew are kept besides, however many, as long as they stand: with
    them that robot's memory is taken out again.
    """

    def __init__(self, keep: int = 200) -> None:
        self._journal: dict[int, Merge] = {}
        self._keep = keep
        self._next = 1
        self._others: set[int] | None = None  # numbers of merges that took in what another robot knew; None = not known
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
        """Make ``gone_id`` part of ``kept_id``: newer position and appearance, older name, all detections.

        The caller removes the node ``gone_id`` from the graph.
        """
        columns = scene.columns
        kept_row, gone_row = scene.row(kept_id), scene.row(gone_id)
        kept, gone = columns.nodes([kept_row, gone_row])
        votes = [dict(columns.about(row).votes) for row in (kept_row, gone_row)]
        merge = Merge(self._next, stamp_ns, evidence, kept, votes[0], gone, votes[1])
        self._next += 1
        self.put(merge)
        if len(self._journal) > self._keep:
            self._forget_oldest(self._keep)
        scene.put(*joined(kept, votes[0], gone, votes[1]))
        mine = history.retract(kept_id, stamp_ns, since_ns=gone.first_seen_ns)  # what is older stands as it is
        mine = [fact for fact in mine if fact.present or fact.valid_from < gone.first_seen_ns]  # not gone: it was there
        history.restate(mine + history.retract(gone_id, stamp_ns), kept_id, stamp_ns)
        return merge

    def undo(
        self, scene: SceneGraph, history: History, number: int, stamp_ns: int, evidence: str
    ) -> tuple[SceneNode, SceneNode]:
        """Take merge ``number`` back: the place and looks of today are those of ``gone``; ``kept`` is as it was. The
        other way round where ``kept`` had been seen last and is nearer to where it was then.

        Facts from before the merge go back to whom they were of, as they were; later ones are of the one whose place it
        is. That the place of ``kept`` had been seen without it, which the merge took back, is believed again.

        Raises:
            InvalidInputError: there is no such merge, it was undone, or its node is no more; lists what stands.
        """
        merge = self._journal.get(number)
        if merge is None or merge.undone or merge.kept.id not in scene.columns:
            valid = ", ".join(f"{one.number} ({one.gone.id} into {one.kept.id})" for one in self.standing()) or "(none)"
            raise InvalidInputError(f"merge {number}: not one that can be undone; valid: {valid}")
        today, votes = scene.node(merge.kept.id), scene.columns.about(scene.row(merge.kept.id)).votes
        was = [(merge.gone, merge.gone_votes), (merge.kept, merge.kept_votes)]
        apart = [np.linalg.norm(node.pose.position - today.pose.position) for node, _ in was]
        if merge.kept.last_seen_ns > merge.gone.last_seen_ns and apart[1] < apart[0]:
            was.reverse()
        (here, own), (past, others) = was
        left = {label: vote - others.get(label, 0.0) for label, vote in votes.items()}
        own = {label: vote for label, vote in left.items() if vote > FEW_VOTES} or own
        here = replace(
            today, id=here.id, label=max(sorted(own), key=own.__getitem__) if own else here.label,
            first_seen_ns=here.first_seen_ns, first_evidence=here.first_evidence,
            observations=max(1, today.observations - past.observations),
        )  # fmt: skip
        scene.put(here, own)
        scene.put(past, others)
        self._part_facts(history, merge, here.id, stamp_ns)
        self.put(replace(merge, undone=evidence))
        return scene.node(merge.kept.id), scene.node(merge.gone.id)

    @staticmethod
    def _part_facts(history: History, merge: Merge, here_id: str, stamp_ns: int) -> None:
        """Give each its facts back; ``here_id`` is the one whose place that of today is."""
        begins, kept_id = merge.gone.first_seen_ns, merge.kept.id
        taken = [fact for fact in history.of(kept_id) if fact.believed_to == merge.stamp_ns]  # by the merge
        known = {_what(fact): fact.valid_to for fact in taken}
        facts = history.retract(kept_id, stamp_ns, since_ns=begins - 1)
        emptied = [fact for fact in taken if not fact.present and fact.valid_from >= begins]  # see merge()
        of: dict[str, list[Fact]] = {kept_id: emptied, merge.gone.id: []}
        for fact in sorted(facts, key=lambda fact: fact.valid_from):
            since = here_id == kept_id and fact.valid_from >= merge.stamp_ns
            if _what(fact) in known:
                fact = replace(fact, valid_to=known[_what(fact)])
            of[kept_id if fact.valid_from < begins or _what(fact) in known or since else merge.gone.id].append(fact)
        of[kept_id].sort(key=lambda fact: fact.valid_from)
        for node_id, its in of.items():
            if its and node_id != here_id:
                its[-1] = replace(its[-1], valid_to=FOREVER)
            history.restate(its, node_id, stamp_ns)

    def _of_others(self) -> set[int]:
        """Return the numbers of the standing merges that took in what another robot knew, themselves or with a node
        that had taken it in."""
        if self._others is None:
            self._others, mixed = set(), set()
            for merge in self.standing():
                if of_another(merge.kept.id) or of_another(merge.gone.id) or merge.gone.id in mixed:
                    self._others.add(merge.number)
                    mixed.add(merge.kept.id)
        return self._others

    def _forget_oldest(self, keep: int) -> None:
        """Forget the oldest merges but ``keep``, beside those that took in what another robot knew."""
        others = self._of_others()
        own = [number for number in self._journal if number not in others]
        for number in own[: max(0, len(own) - keep)]:
            del self._journal[number]
            self.changed.discard(number)
            self.forgotten.add(number)

    def put(self, merge: Merge) -> None:
        """Record a merge, or what is known of it by now."""
        self._journal[merge.number] = merge
        self.changed.add(merge.number)
        self._others = None

    def close(self, number: int, who: str) -> None:
        """Note that a merge does not stand any more; whoever calls has put the nodes right."""
        self.put(replace(self._journal[number], undone=who))

    def shift(self, by_ns: int) -> None:
        """Move every time of every merge, as those of the facts that it took back move."""

        def moved(node: SceneNode) -> SceneNode:
            return replace(node, first_seen_ns=node.first_seen_ns + by_ns, last_seen_ns=node.last_seen_ns + by_ns)

        for number, one in self._journal.items():
            self._journal[number] = replace(
                one, stamp_ns=one.stamp_ns + by_ns, kept=moved(one.kept), gone=moved(one.gone)
            )
        self.changed |= set(self._journal)

    def bytes_used(self) -> int:
        """Return the RAM used by the journal [bytes]."""
        return MERGE_BYTES * len(self._journal)

    def shrink(self, budget: int) -> None:
        """Forget the oldest merges above ``budget`` bytes: they can be undone no longer. Those that took in what
        another robot knew stay."""
        self._forget_oldest(budget // MERGE_BYTES)

    # -- the store -----------------------------------------------------------------------------------------------

    def records(self) -> tuple[list[Record], list[str]]:
        """Return the records that changed and the keys that were removed since :meth:`forget_changes`."""
        changed = [Record(f"{number:09d}", _as_json(self._journal[number])) for number in sorted(self.changed)]
        return changed, [f"{number:09d}" for number in sorted(self.forgotten)]

    def forget_changes(self) -> None:
        """Mark all changes as durable."""
        self.changed, self.forgotten = set(), set()

    def restore(self, records: Sequence[Record]) -> None:
        """Restore stored merges."""
        found = [_from_json(record.data) for record in records]
        self._journal = {merge.number: merge for merge in sorted(found, key=lambda merge: merge.number)}
        self._next = max(self._journal, default=0) + 1
        self._others = None


def of_another(node_id: str) -> bool:
    """Whether a node came with the memory of another robot."""
    return "/" in node_id


def joined(
    kept: SceneNode, kept_votes: Mapping[str, float], gone: SceneNode, gone_votes: Mapping[str, float]
) -> tuple[SceneNode, dict[str, float]]:
    """Return ``kept`` after it took ``gone`` in, and its votes."""
    newer = gone if gone.last_seen_ns >= kept.last_seen_ns else kept
    both = {label: kept_votes.get(label, 0.0) + gone_votes.get(label, 0.0) for label in {**kept_votes, **gone_votes}}
    earlier = min((kept, gone), key=lambda node: node.first_seen_ns)
    node = replace(
        newer, id=kept.id, label=max(sorted(both), key=both.__getitem__) if both else newer.label,
        first_seen_ns=earlier.first_seen_ns, first_evidence=earlier.first_evidence,
        observations=kept.observations + gone.observations,
    )  # fmt: skip
    return node, both


def places(merges: Sequence[Merge]) -> np.ndarray:
    """Return where the kept nodes were before (n, 3) m."""
    return np.array([merge.kept.pose.position for merge in merges]).reshape(-1, 3)


def _what(fact: Fact) -> tuple[int, bytes]:
    """Return by what a fact is known again after it was restated."""
    return fact.valid_from, fact.place.tobytes()


def _as_json(merge: Merge) -> dict[str, Any]:
    return {
        "number": merge.number, "stamp_ns": merge.stamp_ns, "evidence": merge.evidence, "undone": merge.undone,
        "kept": node_as_json(merge.kept, merge.kept_votes), "gone": node_as_json(merge.gone, merge.gone_votes),
    }  # fmt: skip


def _from_json(data: Mapping[str, Any]) -> Merge:
    kept, kept_votes = node_from_json(data["kept"])
    gone, gone_votes = node_from_json(data["gone"])
    return Merge(data["number"], data["stamp_ns"], data["evidence"], kept, kept_votes, gone, gone_votes, data["undone"])
