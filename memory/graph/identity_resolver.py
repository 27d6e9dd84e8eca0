"""Object identity over time: merges duplicate nodes, undoes wrong merges and deletes false detections."""

from __future__ import annotations

import numpy as np

from engram.core.types import GraphEvent
from engram.memory.graph.association import AppearanceFeatures, resembling
from engram.memory.graph.fact_writer import FactWriter
from engram.memory.graph.frame_step import Step
from engram.memory.graph.fusion import Detections, fuse
from engram.memory.graph.grasp import Grasps
from engram.memory.graph.merges import Merges, places
from engram.memory.graph.removed_nodes import RemovedNodes
from engram.memory.graph.scene_graph import SceneGraph
from engram.memory.graph.tracker_config import TrackerConfig
from engram.memory.graph.visibility import UNSEEN as NOT_LOOKED
from engram.memory.storage.columns import ABSENT, UNSEEN
from engram.memory.storage.history import History


class IdentityResolver:
    """Merges and splits nodes of ``scene``, with their facts in ``history``."""

    def __init__(
        self, config: TrackerConfig, scene: SceneGraph, history: History, grasps: Grasps, fact_writer: FactWriter
    ) -> None:
        self.config, self.scene, self.columns, self.history = config, scene, scene.columns, history
        self.grasps, self.fact_writer = grasps, fact_writer
        self.merges = Merges()
        self.removed = RemovedNodes()  # objects that only the history knows any more

    def lower_ambiguous(self, away: np.ndarray, step: Step) -> None:
        """Lower the belief in an object out of view when a second object like it is seen twice elsewhere.

        Either the known object was carried there, or there are two of them. ``away``: rows near this frame whose place
        it could not look at.
        """
        columns, belief = self.columns, self.config.fusion.ambiguous_belief
        for row in [one for one in step.sighted if columns.sights[one] == 2]:
            others = self._namesakes(row, step)
            alike = self._alike(row, others[columns.state[others] != ABSENT])
            if len(alike) != 1 or alike[0] in step.sighted:
                continue  # there are two of them
            if columns.state[alike[0]] != UNSEEN and alike[0] not in away:
                continue
            if columns.belief[alike[0]] > belief:
                columns.belief[alike[0]] = belief
                columns.changed.add(int(alike[0]))
                step.change([int(alike[0])])

    def unmerge(self, features: AppearanceFeatures, j: int, detections: Detections, step: Step) -> bool:
        """Undo a merge that detection ``j`` contradicts: it lies where the merged object was, which is seen elsewhere.

        Return whether there was such a merge.
        """
        columns = self.columns
        standing = [m for m in self.merges.standing() if columns.row_of.get(m.kept.id, -1) in step.sighted]
        if not standing:
            return False
        apart = np.linalg.norm(places(standing) - features.position[0], axis=1)
        for index in np.argsort(apart, kind="stable").tolist():
            merge = standing[index]
            elsewhere = np.linalg.norm(columns.position[columns.row_of[merge.kept.id]] - features.position[0])
            before = AppearanceFeatures.of([merge.kept])
            if apart[index] > self.config.fact_m or elsewhere <= self.config.fact_m:
                continue
            if not resembling(features, before, self.config.association)[0]:
                continue
            self.split(merge.number, step)
            row = columns.row_of[merge.kept.id]
            fuse(columns, np.array([row]), detections, np.array([j]), self.config.fusion)
            columns.seen_by(row, step.camera)
            step.see(columns, np.array([row]))
            return True
        return False

    def split(self, number: int, step: Step) -> None:
        """Take the merge of this number back."""
        kept, gone = self.merges.undo(self.scene, self.history, number, step.stamp_ns, step.evidence)
        rows = [self.columns.row_of[kept.id], self.columns.row_of[gone.id]]
        self.removed.discard(gone.id)
        step.change(rows)
        place = kept.pose.position
        step.events.append(GraphEvent("split", kept.id, kept.label, step.stamp_ns, place, None, gone.id, step.evidence))

    def merge_doubles(self, rows: np.ndarray, verdict: np.ndarray, step: Step) -> None:
        """Join a node that was looked at and not found with its like that was found inside it: one was one too many."""
        columns = self.columns
        looked = (verdict != NOT_LOOKED) & (columns.state[rows] != ABSENT)
        for row in rows[looked].tolist():
            same = columns.by_label.get(columns.about(row).label, set())
            seen = np.array([one for one in step.sighted if one in same and one not in step.taken], np.int64)
            if row in step.taken or not len(seen):
                continue
            inside = (np.abs(columns.position[seen] - columns.position[row]) < columns.half[row]).all(axis=1)
            one = AppearanceFeatures.rows(columns, np.array([row]))
            doubles = seen[inside & resembling(one, AppearanceFeatures.rows(columns, seen), self.config.association)]
            if len(doubles):
                older, newer = sorted((row, int(doubles[0])), key=lambda r: (columns.first_ns[r], r))
                self.merge(older, newer, step)
                step.sighted.append(older)

    def settle(self, step: Step) -> None:
        """Remove wrong names, drop or find again what was given up, and recognise what was known under another id."""
        columns = self.columns
        for row, name in step.renamed.items():
            self._misnamed(row, name, step)
        for row in [row for row in step.changed if columns.state[row] == ABSENT]:
            twin = self._became(row, step)
            if twin is not None:
                self.merge(row, twin, step)
            elif self._never_was(row, step):
                self._delete(row, step)
            elif self.fact_writer.believed_there(row):
                place = columns.position[row].copy()
                self.fact_writer.event("absent", row, step, before=place)
        for row in [row for row in step.sighted if columns.sights[row] % self.config.confirmed_after == 0]:
            was = self._was(row, step) if row not in step.taken else None
            if was is not None:
                self.merge(was, row, step)
                step.sighted.append(was)

    def delete_unsure(self, step: Step) -> None:
        """Delete objects that may be false detections, beyond ``most_unsure`` those seen longest ago."""
        columns, config, rows = self.columns, self.config, self.columns.rows("object")
        unsure = rows[(columns.sights[rows] < config.confirmed_after) & (columns.belief[rows] < config.sure_belief)]
        if len(unsure) <= config.most_unsure:
            return
        oldest = unsure[np.argsort(columns.last_ns[unsure], kind="stable")]
        ids = {row: columns.about(row).id for row in oldest.tolist()}
        ever, gone = self.history.ever_sure(ids.values()), {row for _, row in step.gone}
        never = [row for row, node_id in ids.items() if not ever[node_id] and row not in gone]
        for row in never[: max(0, len(never) - config.most_unsure)]:
            if row not in step.sighted:
                self._delete(row, step)

    def reappeared(self, row: int, step: Step) -> bool:
        """Whether something like ``row`` was first seen elsewhere since ``row`` was last seen: it may be the same."""
        columns, others = self.columns, self._namesakes(row, step)
        others = others[(columns.state[others] != ABSENT) & (columns.first_ns[others] > columns.last_ns[row])]
        return len(self._alike(row, others)) > 0

    def _misnamed(self, row: int, name: str, step: Step) -> None:
        """What was taken for a known object of that ``name`` is something else: take that merge back."""
        node_id = self.columns.about(row).id
        for merge in reversed(self.merges.standing()):
            if merge.kept.id == node_id and merge.kept.label == name:
                self.split(merge.number, step)
                step.sighted[step.sighted.index(row)] = self.columns.row_of[merge.gone.id]
                return

    def _became(self, row: int, step: Step) -> int | None:
        """Return the one confirmed object like ``row`` that was first seen after ``row`` was last seen."""
        columns = self.columns
        others = self._namesakes(row, step)
        others = others[(columns.state[others] != ABSENT) & (columns.first_ns[others] > columns.last_ns[row])]
        alike = [one for one in self._alike(row, others).tolist() if self._confirmed(one)]
        return alike[0] if len(alike) == 1 else None

    def _was(self, row: int, step: Step) -> int | None:
        """Return the object like ``row`` that is gone since before ``row`` was first seen, of several the last seen."""
        columns = self.columns
        if not self._confirmed(row):
            return None
        others = self._namesakes(row, step)
        others = others[(columns.state[others] == ABSENT) & (columns.last_ns[others] < columns.first_ns[row])]
        return max(self._alike(row, others).tolist(), key=lambda one: (columns.last_ns[one], one), default=None)

    def _namesakes(self, row: int, step: Step) -> np.ndarray:
        """Return the rows of the same label that no merge of this frame has used."""
        same = self.columns.by_label.get(self.columns.about(row).label, set())
        others = same - {row, *step.taken, *(one for _, one in step.gone)}
        return np.sort(np.fromiter(others, np.int64, len(others)))

    def _alike(self, row: int, others: np.ndarray) -> np.ndarray:
        """Return those of ``others`` whose appearance is similar to that of ``row``."""
        if not len(others):
            return others
        one = AppearanceFeatures.rows(self.columns, np.array([row]))
        return others[resembling(one, AppearanceFeatures.rows(self.columns, others), self.config.association)]

    def _confirmed(self, row: int) -> bool:
        """Whether it was detected often enough, and mostly under its label, to be matched with a known object."""
        columns, config = self.columns, self.config
        votes = columns.about(row).votes
        sure = votes.get(columns.about(row).label, 1.0) >= config.sure_name * sum(votes.values())
        return bool(columns.sights[row] >= config.confirmed_after and sure)

    def merge(self, kept_row: int, gone_row: int, step: Step) -> None:
        """Make two nodes one; ``kept_row`` keeps its id and gets both pasts."""
        columns = self.columns
        kept_id, gone_id = columns.about(kept_row).id, columns.about(gone_row).id
        before, was_absent = columns.position[kept_row].copy(), not self.fact_writer.believed_there(kept_row)
        self.fact_writer.open(gone_row, step)  # a node that is new in this frame has no fact yet
        self.merges.merge(self.scene, self.history, kept_id, gone_id, step.stamp_ns, step.evidence)
        if gone_row in step.sighted:
            step.sighted.remove(gone_row)
        step.taken |= {kept_row, gone_row}
        step.events = [event for event in step.events if event.node_id != gone_id]
        self.fact_writer.event("merged", kept_row, step, before=before, other=gone_id)
        if np.linalg.norm(columns.position[kept_row] - before) > self.config.fact_m:
            self.fact_writer.event("returned" if was_absent else "moved", kept_row, step, before=before)
        self.drop(gone_row, step)
        step.change([kept_row])

    def _never_was(self, row: int, step: Step) -> bool:
        """Whether an absent object was a false detection.

        It was seen less than ``confirmed_after`` times, and either was never believed or is missed within ``look_s`` of
        its last detection. An object that was believed and is missed later did exist.
        """
        columns, config = self.columns, self.config
        if columns.sights[row] >= config.confirmed_after:
            return False
        node_id = columns.about(row).id
        if step.stamp_ns - columns.last_ns[row] <= config.look_s * 1e9:
            return True
        return not self.history.ever_sure([node_id])[node_id]

    def _delete(self, row: int, step: Step) -> None:
        """Delete a false detection and retract its facts."""
        self.history.retract(self.columns.about(row).id, step.stamp_ns)
        self.fact_writer.event("deleted", row, step)
        self.drop(row, step)

    def drop(self, row: int, step: Step) -> None:
        """Take the node out of the graph; its facts stay."""
        node_id = self.columns.about(row).id
        self.grasps.forget(node_id)
        step.changed.pop(row, None)
        step.gone.append((node_id, row))
