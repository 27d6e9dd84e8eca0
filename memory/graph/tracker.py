"""Tracks objects over frames: association, fusion, visibility, absence, identity, grasps and relations."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.spatial import cKDTree

from engram.core.errors import InvalidInputError
from engram.core.geometry import to_frame
from engram.core.stamped_buffer import RESTART_NS
from engram.core.types import Embodiment, GraphUpdate, SceneObservation
from engram.memory.graph.agents import Agents
from engram.memory.graph.association import AppearanceFeatures, Assignment, assign
from engram.memory.graph.conflicts import Conflicts
from engram.memory.graph.containment import closed_in, seen_into
from engram.memory.graph.contents import Contents
from engram.memory.graph.coverage import Coverage
from engram.memory.graph.fact_writer import FactWriter
from engram.memory.graph.frame_clock import FrameClock
from engram.memory.graph.frame_step import Step
from engram.memory.graph.fusion import Detections, bayes, fuse, spawn, vote
from engram.memory.graph.grasp import Grasps
from engram.memory.graph.identity_resolver import IdentityResolver
from engram.memory.graph.localization import Localisation
from engram.memory.graph.relation_updates import RelationUpdates
from engram.memory.graph.scene_graph import SceneGraph
from engram.memory.graph.tracker_config import TrackerConfig
from engram.memory.graph.visibility import FILLED, FREE, look, reach
from engram.memory.graph.visibility import OCCLUDED as HIDDEN
from engram.memory.graph.visibility import UNSEEN as NOT_LOOKED
from engram.memory.storage.columns import ABSENT, OBJECT, OCCLUDED, UNSEEN, half_extents
from engram.memory.storage.history import History

_MOST_COMPARED = 2048
"""Known objects that are compared with the detections of a frame at once: a matrix has as many rows."""


class Tracker:
    """Updates the scene graph, its history, the coverage and the grasps with one frame at a time, in RAM only."""

    def __init__(self, config: TrackerConfig | None = None) -> None:
        self.config = config or TrackerConfig()
        self.scene = SceneGraph()
        self.columns = self.scene.columns
        self.history = History()
        self.coverage = Coverage()
        self.grasps = Grasps(self.config.grasp)
        self.localisation = Localisation(self.config.localisation)
        self.contents = Contents(self.config, self.scene, self.grasps)
        self.fact_writer = FactWriter(self.config, self.scene, self.history)
        self.relation_updates = RelationUpdates(self.config.relations, self.scene, self.grasps)
        self.agents = Agents(self.config, self.scene, self.history, self.grasps, self.fact_writer)
        self.identities = IdentityResolver(self.config, self.scene, self.history, self.grasps, self.fact_writer)
        self.merges, self.removed = self.identities.merges, self.identities.removed
        self.embodiments, self.hands = self.agents.embodiments, self.agents.hands
        self.conflicts = Conflicts()
        self._clock = FrameClock()
        self.sequence = 0
        self.stamp_ns = 0
        self.expired: set[str] = set()  # absent objects that the next frame removes

    def update(self, scene: SceneObservation) -> GraphUpdate:
        """Take in one frame and return what changed; the sequence grows by one if anything did.

        Raises:
            InvalidInputError: an object, the camera or the hand is not in the memory's frame.
        """
        _check_frames(scene, self.config.frame)
        verdict = self._clock.judge(self.stamp_ns, scene.stamp_ns)
        refused = f"{scene.id} is not remembered: {verdict.refused}" if verdict.refused else self._misplaced(scene)
        if refused:
            return GraphUpdate(scene.stamp_ns, self.sequence, False, (), refused=refused)
        step = Step(scene.stamp_ns, scene.camera, scene.id)
        if verdict.began_ns is not None:
            step.shifted_ns = self._begin_anew(verdict.began_ns)
        self._drop_expired(step)
        columns, config = self.columns, self.config
        held = [columns.row_of[node_id] for _, node_id in self.grasps.pairs() if node_id in columns]
        before = {row: columns.position[row].copy() for row in held}
        self.agents.move(scene, step)
        self.agents.end_old_grips(step)
        detections = Detections.of(scene.objects)
        rows = self._candidates(scene, detections.features, step)
        looked = look(scene, columns.position[rows], 2 * columns.half[rows], config.visibility)
        found = self._match(rows, detections.features)
        if scene.has_view:
            self.coverage.add(scene, *reach(scene, config.visibility))
        into = seen_into(columns, scene, config.visibility)
        self.coverage.look_into(into, scene.stamp_ns)
        before = {int(row): columns.position[row].copy() for row in rows[[i for i, _ in found.known]]} | before
        carried = self.contents.follow(step, before, self._update_matched(rows, found, detections, scene, step))
        matched = np.isin(np.arange(len(rows)), [i for i, _ in found.known])
        self._spawn(found.new, scene, detections, step)
        lost, seen_as = rows[~matched], looked[~matched]
        seen_as = self._out_of_sight(lost, seen_as, carried, into, step)
        self.identities.lower_ambiguous(lost[(seen_as == NOT_LOOKED) | (seen_as == HIDDEN)], step)
        seen_as = np.where((seen_as == FILLED) & self._replaced(lost, detections.features), FREE, seen_as)
        self.identities.merge_doubles(lost, seen_as, step)
        self._update_missed(lost, seen_as, step)
        self.identities.settle(step)
        if step.spawned:
            self.identities.delete_unsure(step)
        return self._finish(step)

    def _begin_anew(self, stamp_ns: int) -> int:
        """A simulation was restarted at ``stamp_ns``: move all stamps to before the new start.

        Return by how much every stamp moved [ns].
        """
        back = self.stamp_ns - stamp_ns + RESTART_NS
        rows = self.columns.rows("object", "agent")
        self.columns.first_ns[rows] -= back
        self.columns.last_ns[rows] -= back
        self.columns.changed.update(rows.tolist())
        self.history.shift(-back)
        self.coverage.shift(-back)
        self.embodiments.shift(-back)
        self.merges.shift(-back)
        self.stamp_ns -= back
        return -back

    def _misplaced(self, scene: SceneObservation) -> str:
        """Say by how much the robot's localisation is off, if this frame shows it; empty = it is not.

        Landmarks are confirmed objects of a name that no other one near has, seen once in this frame.
        """
        if scene.body is None:
            return ""
        columns, config = self.columns, self.config
        held = {node_id for _, node_id in self.grasps.pairs()}
        labels = Counter(one.label for one in scene.objects)
        seen, known = [], []
        for one in scene.objects:
            rows = np.fromiter(columns.by_label.get(one.label, ()), np.int64)
            away = columns.position[rows] - one.pose.position
            near = rows[np.einsum("ni,ni->n", away, away) <= config.localisation.reach_m**2]
            near = near[(columns.state[near] != ABSENT) & (columns.sights[near] >= config.confirmed_after)]
            if len(near) == labels[one.label] == 1 and columns.about(int(near[0])).id not in held:
                seen.append(one.pose.position)
                known.append(columns.position[near[0]])
        jump = self.localisation.jumped(np.array(seen).reshape(-1, 3), np.array(known).reshape(-1, 3))
        if jump is None:
            return ""
        metres = float(np.median(np.linalg.norm(np.array(seen) - np.array(known), axis=1)))
        return (
            f"{jump.inliers} of {len(seen)} landmarks in view are displaced alike, by {metres:.2f} m and "
            f"{jump.yaw:.2f} rad: the robot is not where its localisation says, and {scene.id} is not remembered"
        )

    # -- the steps of a frame ------------------------------------------------------------------------------------

    def _drop_expired(self, step: Step) -> None:
        """Take the nodes out of the graph for which there is no room any more."""
        for node_id in sorted(self.expired):
            if node_id in self.columns:
                self.identities.drop(self.columns.row_of[node_id], step)
        self.expired.clear()

    def _candidates(self, scene: SceneObservation, seen: AppearanceFeatures, step: Step) -> np.ndarray:
        """Return the rows (n,) of objects that this frame may show or rule out."""
        columns, (_, far) = self.columns, reach(scene, self.config.visibility)
        rows = self._in_view(scene, far) if scene.has_view else set()
        if len(seen.labels):
            margin = 0.5
            rows |= columns.objects_within(seen.position.min(axis=0) - margin, seen.position.max(axis=0) + margin)
        rows |= columns.in_view.get(scene.camera, set())
        rows -= {row for _, row in step.gone}
        found = np.fromiter(rows, np.int64, len(rows))
        return np.sort(found[columns.layer[found] == OBJECT])

    def _in_view(self, scene: SceneObservation, far_m: float) -> set[int]:
        """Return the rows of the objects around the camera's frustum, ``far_m`` deep."""
        width, height = scene.image_size
        corners = np.array([(0, 0), (width, 0), (0, height), (width, height)], np.float64)
        rays = (corners - scene.intrinsics[:2, 2]) / np.diag(scene.intrinsics)[:2] * far_m
        far = to_frame(np.column_stack((rays, np.full(4, far_m))), scene.camera_pose)
        points = np.vstack((far, scene.camera_pose.position))
        return self.columns.objects_within(points.min(axis=0), points.max(axis=0))

    def _match(self, rows: np.ndarray, seen: AppearanceFeatures) -> Assignment:
        """Assign detections to ``rows``; rows too far from every detection are not compared.

        Nor are, of more than ``_MOST_COMPARED``, those that are farthest from the nearest one.
        """
        columns, gate = self.columns, self.config.association.place_gate
        if not len(rows) or not len(seen.labels):
            return Assignment((), tuple(range(len(seen.labels))))
        widest = np.trace(columns.covariance[rows], axis1=1, axis2=2)
        widest += np.trace(seen.covariance, axis1=1, axis2=2).max() + 3 * self.config.association.motion_m**2
        nearest, _ = cKDTree(seen.position).query(columns.position[rows])
        some = np.flatnonzero(nearest**2 <= gate * widest)
        if len(some) > _MOST_COMPARED:
            some = np.sort(some[np.argsort(nearest[some], kind="stable")[:_MOST_COMPARED]])
        absent = columns.state[rows[some]] == ABSENT
        found = assign(AppearanceFeatures.rows(columns, rows[some]), seen, self.config.association, absent)
        return Assignment(tuple((int(some[i]), j) for i, j in found.known), found.new)

    def _update_matched(
        self, rows: np.ndarray, found: Assignment, detections: Detections, scene: SceneObservation, step: Step
    ) -> dict[int, np.ndarray]:
        """Fuse the detections of known objects into their nodes; return row -> (3,) m half extents of the detection."""
        if not found.known:
            return {}
        columns = self.columns
        these, of = rows[[i for i, _ in found.known]], np.array([j for _, j in found.known])
        for row, j in zip(these.tolist(), of.tolist(), strict=True):
            about, seen = columns.about(row), scene.objects[j]
            known = about.votes or {about.label: float(min(columns.sights[row], self.config.fusion.memory))}
            about.votes = vote(known, seen.label, seen.score, self.config.fusion)
            called = max(sorted(about.votes), key=about.votes.__getitem__)
            if called != about.label:
                step.renamed[row] = about.label
                columns.relabel(row, called)
            if self.grasps.holder(about.id) and self.grasps.slipped(
                about.id, detections.features.position[j], columns.position[row]
            ):
                self.agents.release(row, step)
            columns.seen_by(row, scene.camera)
        fuse(columns, these, detections, of, self.config.fusion)
        step.see(columns, these)
        return dict(
            zip(these.tolist(), half_extents(detections.quaternion[of], detections.features.size[of]), strict=True)
        )

    def _spawn(self, new: Sequence[int], scene: SceneObservation, detections: Detections, step: Step) -> None:
        """Create nodes for unmatched detections; one that contradicts a merge undoes that merge instead."""
        for j in new:
            seen = scene.objects[j]
            if self.identities.unmerge(AppearanceFeatures.of([seen]), j, detections, step):
                continue
            node = spawn(self.scene.new_id("object"), seen, step.stamp_ns, self.config.fusion, step.evidence)
            row = self.scene.put(node, {seen.label: seen.score})
            step.change([row])
            step.spawned.add(row)
            step.sighted.append(row)

    def _out_of_sight(
        self, rows: np.ndarray, verdict: np.ndarray, carried: set[int], into: Sequence[str], step: Step
    ) -> np.ndarray:
        """Return ``verdict`` (n,) with what its container moved, took along or encloses as hidden.

        ``carried``: rows that were moved with what they lie in or on. ``into``: places that this frame saw into.
        """
        hidden = (verdict != NOT_LOOKED) & np.isin(rows, list(carried))
        missed = np.flatnonzero(((verdict == FREE) | (verdict == FILLED)) & ~hidden)
        if len(missed):
            there, reappeared = rows[missed], functools.partial(self.identities.reappeared, step=step)
            along = self.contents.taken_along(there, set(there.tolist()), reappeared)
            hidden[missed] = along | closed_in(self.scene, there, into)
        return np.where(hidden, HIDDEN, verdict)

    def _follow_merged(self, step: Step) -> None:
        """Move the contents of what was merged with its like found elsewhere."""
        columns = self.columns
        gone = {node_id for node_id, _ in step.gone}
        merged = [event for event in step.events if event.kind == "merged" and event.node_id not in gone]
        before = {columns.row_of[one.node_id]: one.before for one in merged if one.before is not None}
        if before:
            self.contents.follow(step, before, {row: columns.half[row].copy() for row in before})

    def _replaced(self, rows: np.ndarray, seen: AppearanceFeatures) -> np.ndarray:
        """Tell (n,) bool in whose place another object of about the same size stands."""
        if not len(rows) or not len(seen.labels):
            return np.zeros(len(rows), bool)
        if len(rows) > _MOST_COMPARED:
            parts = np.array_split(rows, -(-len(rows) // _MOST_COMPARED))
            return np.concatenate([self._replaced(part, seen) for part in parts])
        columns = self.columns
        offset = np.abs(columns.position[rows][:, None] - seen.position[None])
        ours, theirs = columns.half[rows][:, None], seen.size[None] / 2
        inside = (offset < np.maximum(ours, theirs)).all(axis=2)  # the middle of one in the other
        ratio = np.linalg.norm(columns.size[rows], axis=1)[:, None] / np.maximum(seen.diagonal, 1e-4)[None]
        return (inside & (ratio > 0.5) & (ratio < 2.0)).any(axis=1)

    def _update_missed(self, rows: np.ndarray, verdict: np.ndarray, step: Step) -> None:
        """Lower the belief in objects that a look at their place missed, and mark those hidden or out of view.

        Only the camera that saw an object last decides that it is out of view.
        """
        columns, config = self.columns, self.config
        done = {*step.sighted, *(row for _, row in step.gone)}  # merged or split in this frame
        there = (columns.state[rows] != ABSENT) & np.array([row not in done for row in rows.tolist()], bool)
        rows, verdict = rows[there], verdict[there]
        if not len(rows):
            return
        for name, node_id in self.grasps.pairs():
            if self.agents.hand_known(name, step):  # what is held is hidden by the fingers
                verdict = np.where((rows == columns.row_of[node_id]) & (verdict != NOT_LOOKED), HIDDEN, verdict)
        for kind, ratio in ((FREE, config.fusion.free_ratio), (FILLED, config.fusion.filled_ratio)):
            missed = rows[verdict == kind]
            columns.belief[missed] = bayes(columns.belief[missed], ratio, config.fusion)
            gone = missed[columns.belief[missed] < config.absent_below]
            columns.state[gone] = ABSENT
            for row in gone.tolist():
                columns.out_of_view(row)
                self.agents.end_grips_of(columns.about(row).id, step)
            columns.changed.update(missed.tolist())
            step.change(missed.tolist())
        for kind, state in ((HIDDEN, OCCLUDED), (NOT_LOOKED, UNSEEN)):
            for row in rows[(verdict == kind) & (columns.state[rows] != state)].tolist():
                if columns.about(row).last_camera in ("", step.camera):
                    columns.state[row] = state
                    if state == UNSEEN:
                        columns.out_of_view(row)
                    columns.changed.add(row)
                    step.change([row])

    def _finish(self, step: Step) -> GraphUpdate:
        """Update contents, relations and facts; return what changed."""
        self._follow_merged(step)
        touched = self.relation_updates.displaced(list(step.changed))
        gone = tuple(node_id for node_id, _ in step.gone)
        added, removed = self.relation_updates.relate(touched, gone)
        for node_id, row in step.gone:
            size = self.columns.size[row].copy()
            self.scene.remove(node_id)
            self.relation_updates.forget(row)
            if row not in step.spawned:
                self.removed.add(node_id, size if self.history.believed(node_id) else None)
        self.fact_writer.follow(step, added, removed)
        self.stamp_ns = max(self.stamp_ns, step.stamp_ns)
        if step.changed or gone:
            self.sequence += 1
        nodes = tuple(self.columns.nodes(list(step.changed)))
        known = tuple(node_id for node_id, row in step.gone if row not in step.spawned)
        events, shifted = tuple(step.events), step.shifted_ns
        return GraphUpdate(step.stamp_ns, self.sequence, False, nodes, added, known, removed, events, shifted)

    # -- from outside --------------------------------------------------------------------------------------------

    def introduce(self, name: str, embodiment: Embodiment, stamp_ns: int) -> GraphUpdate:
        """Say what the robot called ``name`` is, whose memory this is; where it drives, its place is not known yet."""
        step = Step(stamp_ns, "", "")
        self.agents.introduce(name, embodiment, step)
        return self._finish(step)

    def undo_merge(self, number: int, stamp_ns: int, who: str) -> GraphUpdate:
        """Take a merge back; raises InvalidInputError when there is no such merge, with those there are."""
        step = Step(stamp_ns, "", who)
        self.identities.split(number, step)
        return self._finish(step)

    def merge_nodes(self, kept_id: str, gone_id: str, stamp_ns: int, who: str) -> GraphUpdate:
        """Say that two nodes are one object; raises UnknownNameError for an id that is not there."""
        step = Step(stamp_ns, "", who)
        self.identities.merge(self.scene.row(kept_id), self.scene.row(gone_id), step)
        return self._finish(step)


def _check_frames(scene: SceneObservation, frame: str) -> None:
    frames = {seen.pose.frame for seen in scene.objects}
    if scene.has_view:
        frames.add(scene.camera_pose.frame)
    if scene.hand is not None:
        frames.add(scene.hand.pose.frame)
    if scene.body is not None:
        frames.add(scene.body.pose.frame)
    if frames - {frame}:
        raise InvalidInputError(f"SceneObservation of {scene.camera!r}: frames {sorted(frames)}, valid: {frame}")
