"""From frames to objects over time: seen, hidden, gone, moved, held, one or two of a kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.spatial import cKDTree

from engram.core.errors import InvalidInputError
from engram.core.geometry import to_frame
from engram.core.types import (
    EMBEDDING_DIM,
    Embodiment,
    GraphEvent,
    GraphUpdate,
    Hand,
    Pose,
    SceneEdge,
    SceneNode,
    SceneObservation,
    Skill,
)
from engram.memory.agents import Agents
from engram.memory.association import Assignment, AssociationConfig, Looks, assign, resembling
from engram.memory.columns import ABSENT, AGENT, OBJECT, OCCLUDED, UNSEEN, VISIBLE
from engram.memory.coverage import Coverage
from engram.memory.fusion import FusionConfig, Sights, bayes, born, fuse, vote
from engram.memory.grasp import GraspConfig, Grasps
from engram.memory.history import History
from engram.memory.localisation import Localisation, LocalisationConfig
from engram.memory.merges import Merges, places
from engram.memory.relations import Boxes, RelationConfig, relations
from engram.memory.scene_graph import SceneGraph
from engram.memory.visibility import FILLED, FREE, VisibilityConfig, look
from engram.memory.visibility import OCCLUDED as HIDDEN
from engram.memory.visibility import UNSEEN as NOT_LOOKED

BACK_NS = 1_000_000_000
"""A frame this much older than the newest means that time began anew."""
_SUPPORTS = ("held_by", "in", "on")
"""What a fact says of where an object is."""


@dataclass(frozen=True)
class TrackerConfig:
    """All settings of what becomes of objects."""

    frame: str = "base_link"
    """The frame of every pose: ``base_link`` for an arm on its table, ``map`` for a robot that drives."""
    absent_below: float = 0.2
    """An object believed less than this is ``absent``."""
    confirmed_after: int = 3
    """An object given up with fewer sights than this was a false detection: it is deleted, and the delta says so.
    Nor does one with fewer sights take over the identity of an object that is gone elsewhere."""
    sure_name: float = 0.67
    """Least share of the votes for its label that such a takeover needs."""
    fact_m: float = 0.05
    """An object that went this far begins a new fact."""
    way_m: float = 0.25
    """So does an agent that went this far."""
    association: AssociationConfig = field(default_factory=AssociationConfig)
    fusion: FusionConfig = field(default_factory=FusionConfig)
    grasp: GraspConfig = field(default_factory=GraspConfig)
    localisation: LocalisationConfig = field(default_factory=LocalisationConfig)
    relations: RelationConfig = field(default_factory=RelationConfig)
    visibility: VisibilityConfig = field(default_factory=VisibilityConfig)


@dataclass
class _Step:
    """What one frame does."""

    stamp_ns: int
    camera: str
    evidence: str
    changed: dict[int, None] = field(default_factory=dict)  # rows, in order
    sighted: list[int] = field(default_factory=list)  # rows seen in this frame
    born: set[int] = field(default_factory=set)  # rows of objects that are new in this frame
    gone: list[tuple[str, int]] = field(default_factory=list)  # id and row of nodes that are no more
    events: list[GraphEvent] = field(default_factory=list)
    taken: set[int] = field(default_factory=set)  # rows that a merge has used
    shifted_ns: int = 0  # how far every earlier stamp moved
    renamed: dict[int, str] = field(default_factory=dict)  # row -> what it was called until this frame

    def change(self, rows: Iterable[int]) -> None:
        self.changed.update(dict.fromkeys(rows))


class Tracker:
    """Scene graph, history, coverage and grips, changed by one frame at a time. Never touches the disk."""

    def __init__(self, config: TrackerConfig | None = None) -> None:
        self.config = config or TrackerConfig()
        self.scene = SceneGraph()
        self.columns = self.scene.columns
        self.history = History()
        self.coverage = Coverage()
        self.grasps = Grasps(self.config.grasp)
        self.merges = Merges()
        self.agents = Agents()
        self.localisation = Localisation(self.config.localisation)
        self.hands: dict[str, np.ndarray] = {}  # agent's name -> (3,) m, where its tool is
        self.sequence = 0
        self.stamp_ns = 0
        self.gone: set[str] = set()  # objects that only the history knows any more
        self.expired: set[str] = set()  # absent objects that the next frame forgets
        self._learnt: set[str] = set()  # agents whose skills the next update tells of
        self._placed = np.full((0, 7), np.nan)  # by row: box that its relations were computed for, and its kind

    def update(self, scene: SceneObservation) -> GraphUpdate:
        """Take in one frame and return what changed; the sequence grows by one if anything did.

        Raises:
            InvalidInputError: an object, the camera or the hand is not in the memory's frame.
        """
        _check_frames(scene, self.config.frame)
        refused = self._misplaced(scene)
        if refused:
            return GraphUpdate(scene.stamp_ns, self.sequence, False, (), refused=refused)
        step = _Step(scene.stamp_ns, scene.camera, scene.id)
        if scene.stamp_ns < self.stamp_ns - BACK_NS:
            step.shifted_ns = self._begin_anew(scene.stamp_ns)
        for node_id in sorted(self.expired):
            if node_id in self.columns:
                self._drop(self.columns.row_of[node_id], step)
        self.expired.clear()
        step.change(self.columns.row_of[one] for one in sorted(self._learnt) if one in self.columns)
        self._learnt.clear()
        self._move_agents(scene, step)
        columns, config = self.columns, self.config
        sights = Sights.of(scene.objects)
        rows = self._candidates(scene, sights.looks, step)
        verdict = look(scene, columns.position[rows], columns.size[rows], config.visibility)
        found = self._match(rows, sights.looks)
        self.coverage.add(scene, config.visibility.max_depth_m)
        self._see(rows, found, sights, scene, step)
        matched = np.zeros(len(rows), bool)
        matched[[i for i, _ in found.known]] = True
        self._bear(found.new, scene, sights, step)
        lost, seen_as = rows[~matched], verdict[~matched]
        self._doubt(lost[(seen_as == NOT_LOOKED) | (seen_as == HIDDEN)], step)
        seen_as = np.where((seen_as == FILLED) & self._replaced(lost, sights.looks), FREE, seen_as)
        self._merge_doubles(lost, seen_as, step)
        self._miss(lost, seen_as, step)
        self._settle(step)
        return self._finish(step)

    def _begin_anew(self, stamp_ns: int) -> int:
        """The clock went back, because a simulation was restarted: what was known lies before its beginning.

        Return by how much every stamp moved.
        """
        back = self.stamp_ns - stamp_ns + BACK_NS
        rows = self.columns.rows("object", "agent")
        self.columns.first_ns[rows] -= back
        self.columns.last_ns[rows] -= back
        self.columns.changed.update(rows.tolist())
        self.history.shift(-back)
        self.coverage.shift(-back)
        self.agents.shift(-back)
        self.stamp_ns -= back
        return -back

    def _misplaced(self, scene: SceneObservation) -> str:
        """Say by how much the robot's own place jumped, if this frame shows it; empty = it did not.

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

    def _candidates(self, scene: SceneObservation, seen: Looks, step: _Step) -> np.ndarray:
        """Return the rows (n,) of objects that this frame can say anything about."""
        columns, reach = self.columns, self.config.visibility.max_depth_m
        width, height = scene.image_size
        corners = np.array([(0, 0), (width, 0), (0, height), (width, height)], np.float64)
        rays = (corners - scene.intrinsics[:2, 2]) / np.diag(scene.intrinsics)[:2] * reach
        far = to_frame(np.column_stack((rays, np.full(4, reach))), scene.camera_pose)
        points = np.vstack((far, scene.camera_pose.position))
        rows = columns.objects_within(points.min(axis=0), points.max(axis=0))
        if len(seen.labels):
            margin = 0.5
            rows |= columns.objects_within(seen.position.min(axis=0) - margin, seen.position.max(axis=0) + margin)
        rows |= columns.in_view.get(scene.camera, set())
        rows -= {row for _, row in step.gone}
        found = np.fromiter(rows, np.int64, len(rows))
        return np.sort(found[columns.layer[found] == OBJECT])

    def _match(self, rows: np.ndarray, seen: Looks) -> Assignment:
        """Assign sights to ``rows``; those too far from every sight are spared the comparison."""
        columns, gate = self.columns, self.config.association.place_gate
        if not len(rows) or not len(seen.labels):
            return Assignment((), tuple(range(len(seen.labels))))
        widest = np.trace(columns.covariance[rows], axis1=1, axis2=2)
        widest += np.trace(seen.covariance, axis1=1, axis2=2).max() + 3 * self.config.association.motion_m**2
        nearest, _ = cKDTree(seen.position).query(columns.position[rows])
        some = np.flatnonzero(nearest**2 <= gate * widest)
        absent = columns.state[rows[some]] == ABSENT
        found = assign(Looks.rows(columns, rows[some]), seen, self.config.association, absent)
        return Assignment(tuple((int(some[i]), j) for i, j in found.known), found.new)

    def _see(self, rows: np.ndarray, found: Assignment, sights: Sights, scene: SceneObservation, step: _Step) -> None:
        """Fuse the sights of known objects."""
        if not found.known:
            return
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
                about.id, sights.looks.position[j], columns.position[row]
            ):
                self._release(row, step)
            columns.seen_by(row, scene.camera)
        fuse(columns, these, sights, of, self.config.fusion)
        self._sighted(these, step)

    def _sighted(self, rows: np.ndarray, step: _Step) -> None:
        columns = self.columns
        columns.state[rows] = VISIBLE
        columns.first_ns[rows] = np.minimum(columns.first_ns[rows], step.stamp_ns)
        columns.last_ns[rows] = np.maximum(columns.last_ns[rows], step.stamp_ns)
        columns.sights[rows] += 1
        columns.moved(rows.tolist())
        step.change(rows.tolist())
        step.sighted += rows.tolist()

    def _bear(self, new: Sequence[int], scene: SceneObservation, sights: Sights, step: _Step) -> None:
        """New objects; one that shows that a merge was wrong takes that merge back instead."""
        for j in new:
            seen = scene.objects[j]
            if self._unmerge(Looks.of([seen]), j, sights, step):
                continue
            node = born(self.scene.new_id("object"), seen, step.stamp_ns, self.config.fusion, step.evidence)
            row = self.scene.put(node, {seen.label: seen.score})
            step.change([row])
            step.born.add(row)
            step.sighted.append(row)

    def _doubt(self, away: np.ndarray, step: _Step) -> None:
        """An object just like the one known elsewhere, seen for the second time: believe that one less.

        ``away``: rows in reach of this frame that it could not look at.
        """
        columns, doubt = self.columns, self.config.fusion.doubt
        for row in [one for one in step.sighted if columns.sights[one] == 2]:
            others = self._namesakes(row, step)
            alike = self._alike(row, others[columns.state[others] != ABSENT])
            if len(alike) != 1 or alike[0] in step.sighted:
                continue  # there are two of them
            if columns.state[alike[0]] != UNSEEN and alike[0] not in away:
                continue
            if columns.belief[alike[0]] > doubt:
                columns.belief[alike[0]] = doubt
                columns.changed.add(int(alike[0]))
                step.change([int(alike[0])])

    def _unmerge(self, looks: Looks, j: int, sights: Sights, step: _Step) -> bool:
        """Whether sight ``j`` lies where a merged object was before, while that object is seen elsewhere."""
        columns = self.columns
        standing = [m for m in self.merges.standing() if columns.row_of.get(m.kept.id, -1) in step.sighted]
        if not standing:
            return False
        apart = np.linalg.norm(places(standing) - looks.position[0], axis=1)
        for index in np.argsort(apart, kind="stable").tolist():
            merge = standing[index]
            elsewhere = np.linalg.norm(columns.position[columns.row_of[merge.kept.id]] - looks.position[0])
            before = Looks.of([merge.kept])
            if apart[index] > self.config.fact_m or elsewhere <= self.config.fact_m:
                continue
            if not resembling(looks, before, self.config.association)[0]:
                continue
            self._split(merge.number, step)
            row = columns.row_of[merge.kept.id]
            fuse(columns, np.array([row]), sights, np.array([j]), self.config.fusion)
            columns.seen_by(row, step.camera)
            self._sighted(np.array([row]), step)
            return True
        return False

    def _split(self, number: int, step: _Step) -> None:
        kept, gone = self.merges.undo(self.scene, self.history, number, step.stamp_ns, step.evidence)
        rows = [self.columns.row_of[kept.id], self.columns.row_of[gone.id]]
        self.gone.discard(gone.id)
        step.change(rows)
        place = kept.pose.position
        step.events.append(GraphEvent("split", kept.id, kept.label, step.stamp_ns, place, None, gone.id, step.evidence))

    def _merge_doubles(self, rows: np.ndarray, verdict: np.ndarray, step: _Step) -> None:
        """Join a node that was looked at and not found with its like that was found inside it: one was one too many."""
        columns = self.columns
        looked = (verdict != NOT_LOOKED) & (columns.state[rows] != ABSENT)
        for row in rows[looked].tolist():
            same = columns.by_label.get(columns.about(row).label, set())
            seen = np.array([one for one in step.sighted if one in same and one not in step.taken], np.int64)
            if row in step.taken or not len(seen):
                continue
            inside = (np.abs(columns.position[seen] - columns.position[row]) < columns.half[row]).all(axis=1)
            one = Looks.rows(columns, np.array([row]))
            doubles = seen[inside & resembling(one, Looks.rows(columns, seen), self.config.association)]
            if len(doubles):
                older, newer = sorted((row, int(doubles[0])), key=lambda r: (columns.first_ns[r], r))
                self._merge(older, newer, step)
                step.sighted.append(older)

    def _replaced(self, rows: np.ndarray, seen: Looks) -> np.ndarray:
        """Tell (n,) bool in whose place something else of about its size stands, which was not taken for it."""
        if not len(rows) or not len(seen.labels):
            return np.zeros(len(rows), bool)
        columns = self.columns
        offset = np.abs(columns.position[rows][:, None] - seen.position[None])
        ours, theirs = columns.half[rows][:, None], seen.size[None] / 2
        inside = (offset < np.maximum(ours, theirs)).all(axis=2)  # the middle of one in the other
        ratio = np.linalg.norm(columns.size[rows], axis=1)[:, None] / np.maximum(seen.diagonal, 1e-4)[None]
        return (inside & (ratio > 0.5) & (ratio < 2.0)).any(axis=1)

    def _miss(self, rows: np.ndarray, verdict: np.ndarray, step: _Step) -> None:
        """Absence is evidence only where the camera looked; only the camera that saw it last says it is out of view."""
        columns, config = self.columns, self.config
        done = {*step.sighted, *(row for _, row in step.gone)}  # by a merge of this very frame, or one taken back
        there = (columns.state[rows] != ABSENT) & np.array([row not in done for row in rows.tolist()], bool)
        rows, verdict = rows[there], verdict[there]
        if not len(rows):
            return
        for _, node_id in self.grasps.pairs():  # fingers hide what they hold
            verdict = np.where((rows == columns.row_of[node_id]) & (verdict != NOT_LOOKED), HIDDEN, verdict)
        for kind, ratio in ((FREE, config.fusion.free_ratio), (FILLED, config.fusion.filled_ratio)):
            missed = rows[verdict == kind]
            columns.belief[missed] = bayes(columns.belief[missed], ratio, config.fusion)
            gone = missed[columns.belief[missed] < config.absent_below]
            columns.state[gone] = ABSENT
            for row in gone.tolist():
                columns.out_of_view(row)
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

    def _settle(self, step: _Step) -> None:
        """Identities: wrong names come off, what was given up goes or is found elsewhere, what is new may be old."""
        columns = self.columns
        for row, name in step.renamed.items():
            self._misnamed(row, name, step)
        for row in [row for row in step.changed if columns.state[row] == ABSENT]:
            twin = self._became(row, step)
            if twin is not None:
                self._merge(row, twin, step)
            elif columns.sights[row] < self.config.confirmed_after:
                self._delete(row, step)
            elif self._believed_there(row):
                place = columns.position[row].copy()
                self._event("absent", row, step, before=place)
        for row in [row for row in step.sighted if columns.sights[row] % self.config.confirmed_after == 0]:
            was = self._was(row, step) if row not in step.taken else None
            if was is not None:
                self._merge(was, row, step)
                step.sighted.append(was)

    def _misnamed(self, row: int, name: str, step: _Step) -> None:
        """What was taken for a known object of that ``name`` is something else: take that merge back."""
        node_id = self.columns.about(row).id
        for merge in reversed(self.merges.standing()):
            if merge.kept.id == node_id and merge.kept.label == name:
                self._split(merge.number, step)
                step.sighted[step.sighted.index(row)] = self.columns.row_of[merge.gone.id]
                return

    def _became(self, row: int, step: _Step) -> int | None:
        """Return the one confirmed object like ``row`` that was first seen after ``row`` was last seen."""
        columns = self.columns
        others = self._namesakes(row, step)
        others = others[(columns.state[others] != ABSENT) & (columns.first_ns[others] > columns.last_ns[row])]
        alike = [one for one in self._alike(row, others).tolist() if self._confirmed(one)]
        return alike[0] if len(alike) == 1 else None

    def _was(self, row: int, step: _Step) -> int | None:
        """Return the object like ``row`` that is gone since before ``row`` was first seen, of several the last seen."""
        columns = self.columns
        if not self._confirmed(row):
            return None
        others = self._namesakes(row, step)
        others = others[(columns.state[others] == ABSENT) & (columns.last_ns[others] < columns.first_ns[row])]
        return max(self._alike(row, others).tolist(), key=lambda one: (columns.last_ns[one], one), default=None)

    def _namesakes(self, row: int, step: _Step) -> np.ndarray:
        """Return the rows of the same label that no merge of this frame has used."""
        same = self.columns.by_label.get(self.columns.about(row).label, set())
        others = same - {row, *step.taken, *(one for _, one in step.gone)}
        return np.sort(np.fromiter(others, np.int64, len(others)))

    def _alike(self, row: int, others: np.ndarray) -> np.ndarray:
        """Return those of ``others`` that look like ``row``."""
        if not len(others):
            return others
        one = Looks.rows(self.columns, np.array([row]))
        return others[resembling(one, Looks.rows(self.columns, others), self.config.association)]

    def _confirmed(self, row: int) -> bool:
        """Whether it was seen often enough, and mostly under its name, to be taken for a known object."""
        columns, config = self.columns, self.config
        votes = columns.about(row).votes
        sure = votes.get(columns.about(row).label, 1.0) >= config.sure_name * sum(votes.values())
        return bool(columns.sights[row] >= config.confirmed_after and sure)

    def _merge(self, kept_row: int, gone_row: int, step: _Step) -> None:
        columns = self.columns
        kept_id, gone_id = columns.about(kept_row).id, columns.about(gone_row).id
        before, was_absent = columns.position[kept_row].copy(), not self._believed_there(kept_row)
        self._open_fact(gone_row, step)  # a twin born in this very frame has none yet
        self.merges.merge(self.scene, self.history, kept_id, gone_id, step.stamp_ns, step.evidence)
        if gone_row in step.sighted:
            step.sighted.remove(gone_row)
        step.taken |= {kept_row, gone_row}
        step.events = [event for event in step.events if event.node_id != gone_id]
        self._event("merged", kept_row, step, before=before, other=gone_id)
        if np.linalg.norm(columns.position[kept_row] - before) > self.config.fact_m:
            self._event("returned" if was_absent else "moved", kept_row, step, before=before)
        self._drop(gone_row, step)
        step.change([kept_row])

    def _delete(self, row: int, step: _Step) -> None:
        """A false detection: it never was, from now on."""
        self.history.retract(self.columns.about(row).id, step.stamp_ns)
        self._event("deleted", row, step)
        self._drop(row, step)

    def _drop(self, row: int, step: _Step) -> None:
        node_id = self.columns.about(row).id
        self.grasps.forget(node_id)
        step.changed.pop(row, None)
        step.gone.append((node_id, row))

    # -- the hand ------------------------------------------------------------------------------------------------

    def _move_agents(self, scene: SceneObservation, step: _Step) -> None:
        """Bring the robot's node to where it stands, and what it holds to its hand.

        An arm stands in the origin of ``base_link``; of a robot that drives without telling where, only its hand is
        known.
        """
        hand, body = scene.hand, scene.body
        if body is not None:
            self._stand(body.agent, body.pose, step)
        if hand is None:
            return
        if body is None or body.agent != hand.agent:
            self._stand(hand.agent, hand.pose if self.config.frame != "base_link" else _origin(), step)
        self.hands[hand.agent] = hand.pose.position
        self._move_hand(hand, step)

    def _stand(self, name: str, pose: Pose, step: _Step) -> int:
        """Put the agent called ``name`` at ``pose``; return its row."""
        columns, node_id = self.columns, self.agent_id(name)
        if node_id is None:
            row = self.scene.put(agent(self.scene.new_id("agent"), name, pose, step.stamp_ns, step.evidence))
            step.change([row])
            return row
        row = columns.row_of[node_id]
        columns.last_ns[row] = max(int(columns.last_ns[row]), step.stamp_ns)
        columns.sights[row] += 1
        columns.about(row).last_camera = step.camera or columns.about(row).last_camera
        columns.belief[row], columns.state[row] = 1.0, VISIBLE
        columns.changed.add(row)
        if np.abs(columns.position[row] - pose.position).max() > self.config.relations.resting_m:
            columns.position[row], columns.quaternion[row] = pose.position, pose.quaternion
            columns.moved([row])
            step.change([row])
        elif self._current(row) < 0:
            step.change([row])
        elif step.camera:
            self.history.sighted(node_id, step.stamp_ns, step.camera)
        return row

    def _move_hand(self, hand: Hand, step: _Step) -> None:
        columns = self.columns
        taken, dropped = self.grasps.carry(hand, columns)
        held = self.grasps.held(hand.agent)
        if held is not None:
            row = columns.row_of[held]
            columns.changed.add(row)
            step.change([row])
        if taken is not None:
            self._event("held", columns.row_of[taken], step, other=self.agent_id(hand.agent) or "")
        if dropped is not None and dropped in columns:
            self._release(columns.row_of[dropped], step)

    def _release(self, row: int, step: _Step) -> None:
        self._event("released", row, step)
        step.change([row])

    def introduce(self, name: str, embodiment: Embodiment, stamp_ns: int) -> GraphUpdate:
        """Say what the robot called ``name`` is, whose memory this is; where it drives, its place is not known yet."""
        step = _Step(stamp_ns, "", "")
        known = self.agent_id(name)
        if known is not None:
            row = self.columns.row_of[known]
        elif self.config.frame == "base_link":
            row = self._stand(name, _origin(), step)
        else:
            nowhere = agent(self.scene.new_id("agent"), name, replace(_origin(), frame=self.config.frame), stamp_ns)
            row = self.scene.put(replace(nowhere, belief=0.0, state="unseen"))
            step.change([row])
        about = self.columns.about(row)
        self.agents.own = about.id
        if self.agents.state(about.id, embodiment, stamp_ns):
            about.embodiment = self.agents.at(about.id)
            self.columns.changed.add(row)
            step.change([row])
        return self._finish(step)

    def learnt(self, skills: Sequence[Skill]) -> None:
        """Take over what the robot whose memory this is has tried; the next update tells of it."""
        own = self.agents.own
        if own in self.columns and self.agents.learnt(own, skills):
            row = self.columns.row_of[own]
            self.columns.about(row).embodiment = self.agents.at(own)
            self.columns.changed.add(row)
            self._learnt.add(own)

    def agent_id(self, name: str) -> str | None:
        """Return the node id of the agent called ``name``."""
        texts = (self.columns.about(row) for row in sorted(self.columns.agents))
        return next((text.id for text in texts if text.label == name), None)

    # -- after a frame -------------------------------------------------------------------------------------------

    def _finish(self, step: _Step) -> GraphUpdate:
        """Relations, facts and the delta."""
        touched = self._displaced(list(step.changed))
        gone = tuple(node_id for node_id, _ in step.gone)
        added, removed = self._relate(touched, gone)
        for node_id, row in step.gone:
            self.scene.remove(node_id)
            self._placed[row] = np.nan
            if row not in step.born:
                self.gone.add(node_id)
        self._facts(step, added, removed)
        self.stamp_ns = max(self.stamp_ns, step.stamp_ns)
        if step.changed or gone:
            self.sequence += 1
        nodes = tuple(self.columns.nodes(list(step.changed)))
        known = tuple(node_id for node_id, row in step.gone if row not in step.born)
        events, shifted = tuple(step.events), step.shifted_ns
        return GraphUpdate(step.stamp_ns, self.sequence, False, nodes, added, known, removed, events, shifted)

    def _displaced(self, rows: list[int]) -> set[int]:
        """Return those of ``rows`` that left the box that their relations were computed for, by more than noise."""
        if not rows:
            return set()
        index, top = np.array(rows, np.int64), len(self.columns.text)
        if len(self._placed) < top:
            grown = np.full((2 * top, 7), np.nan)
            grown[: len(self._placed)] = self._placed
            self._placed = grown
        here = self._boxes(index)
        away = ~(np.abs(here - self._placed[index]) <= self.config.relations.resting_m).all(axis=1)  # NaN is away
        self._placed[index[away]] = here[away]
        return set(index[away].tolist())

    def _boxes(self, rows: np.ndarray) -> np.ndarray:
        """Return (n, 7): position and size in m, and a number that says whether it is held and whether it is absent."""
        columns = self.columns
        held = [columns.row_of[node_id] for _, node_id in self.grasps.pairs() if node_id in columns]
        kinds = 2.0 * np.isin(rows, held) + (columns.state[rows] == ABSENT)
        return np.column_stack((columns.position[rows], columns.size[rows], kinds))

    def relate_all(self) -> None:
        """Compute every relation anew, after the nodes were restored."""
        rows = self.columns.rows()
        self._placed = np.full((len(self.columns.text), 7), np.nan)
        self._placed[rows] = self._boxes(rows)
        self._relate(set(rows.tolist()), ())

    def _relate(self, touched: set[int], gone: Sequence[str]) -> tuple[tuple[SceneEdge, ...], tuple[SceneEdge, ...]]:
        """Bring the relations of ``touched`` rows up to date; those of ``gone`` nodes end."""
        columns = self.columns
        ids = {columns.about(row).id for row in touched} | set(gone)
        if not ids:
            return (), ()
        rows = self._neighbourhood(touched) - {columns.row_of[node_id] for node_id in gone}
        there = np.array(sorted(r for r in rows if columns.state[r] != ABSENT and columns.about(r).layer != "agent"))
        wanted = []
        if len(there):
            texts = [columns.about(int(row)) for row in there]
            among = Boxes([t.id for t in texts], [t.layer for t in texts], columns.position[there], columns.half[there])
            wanted = relations(among, self.config.relations, ids)
        for holder, held in self.grasps.pairs():
            agent_id = self.agent_id(holder)
            if agent_id is not None and held not in gone and {agent_id, held} & ids:
                wanted.append((held, agent_id, "held_by"))
        return self.scene.set_edges(wanted, ids)

    def _neighbourhood(self, touched: set[int]) -> set[int]:
        """Return rows that may be related to ``touched`` rows."""
        columns = self.columns
        if len(touched) > 1000:
            return set(columns.row_of.values())
        around = self._wide(touched) | touched
        for row in touched:
            if self.columns.about(row).layer == "agent":
                continue
            margin = columns.half[row] + self.config.relations.near_m + 0.5  # the longest half of a small box
            around |= columns.grid.within(columns.position[row] - margin, columns.position[row] + margin)
        return around

    def _wide(self, touched: set[int]) -> set[int]:
        """Return the large boxes that ``touched`` rows may lie in or on."""
        columns = self.columns
        if not touched:
            return set()
        wide, rows = np.fromiter(columns.large, np.int64), np.fromiter(touched, np.int64)
        margin = columns.half[rows] + self.config.relations.near_m
        low, high = (columns.position[rows] - margin).min(axis=0), (columns.position[rows] + margin).max(axis=0)
        apart = np.maximum(low - columns.position[wide], columns.position[wide] - high)
        return set(wide[(apart <= columns.half[wide]).all(axis=1)].tolist())

    def _facts(self, step: _Step, added: Sequence[SceneEdge], removed: Sequence[SceneEdge]) -> None:
        """State what this frame changed of where objects are."""
        columns, history = self.columns, self.history
        resupported = {e.source for e in (*added, *removed) if e.relation in _SUPPORTS}
        check = {row for row in step.changed if columns.about(row).layer == "object"}
        check |= {columns.row_of[node_id] for node_id in resupported if node_id in columns}
        rows = np.array(sorted(check), np.int64)
        facts = np.array([self._current(row) for row in rows.tolist()], np.int64)
        has = facts >= 0
        apart = np.full(len(rows), np.inf)
        apart[has] = np.linalg.norm(columns.position[rows[has]] - history.place[facts[has]], axis=1)
        seen = set(step.sighted)
        for row, fact, distance in zip(rows.tolist(), facts.tolist(), apart.tolist(), strict=True):
            self._fact(row, fact, distance, row in seen, step)
        for row in [row for row in step.changed if columns.layer[row] == AGENT]:
            self._whereabouts(row, step)

    def _fact(self, row: int, fact: int, distance: float, seen: bool, step: _Step) -> None:
        """Go on with the open ``fact`` of ``row`` (-1 = none), or end it and state another."""
        columns, history = self.columns, self.history
        about, absent = columns.about(row), columns.state[row] == ABSENT
        if fact < 0:
            if not absent:
                self._open_fact(row, step)
            return
        if absent:
            if history.present[fact]:
                self._state(row, step, present=False)
            return
        relation, target = self.support(about.id)
        was = history.words[history.relation[fact]], history.words[history.target[fact]]
        carried = relation == was[0] == "held_by"
        put_elsewhere = target != "" and (relation, target) != was
        let_go = was[0] == "held_by" and relation != "held_by"
        back = not history.present[fact]
        if back and not seen:
            return
        renamed = history.words[history.label[fact]] != about.label
        if back or renamed or let_go or put_elsewhere or (distance > self.config.fact_m and not carried):
            before = history.place[fact].astype(np.float64)
            self._state(row, step)
            if back:
                self._event("returned", row, step, before=before)
            elif distance > self.config.fact_m and row not in step.taken:
                self._event("moved", row, step, before=before)
        elif seen:
            history.sighted(about.id, step.stamp_ns, step.camera)

    def _whereabouts(self, row: int, step: _Step) -> None:
        """State the way of an agent, in steps of ``way_m``; going somewhere is no event."""
        if self.columns.belief[row] == 0:
            return
        fact = self._current(row)
        gone = np.inf if fact < 0 else np.linalg.norm(self.columns.position[row] - self.history.place[fact])
        if gone > self.config.way_m:
            self._state(row, step)
        elif step.camera:
            self.history.sighted(self.columns.about(row).id, step.stamp_ns, step.camera)

    def _open_fact(self, row: int, step: _Step) -> None:
        if self._current(row) < 0 and self.columns.about(row).layer == "object":
            self._state(row, step)
            self._event("new", row, step)

    def _state(self, row: int, step: _Step, present: bool = True) -> None:
        columns, about = self.columns, self.columns.about(row)
        relation, target = self.support(about.id) if present else ("", "")
        self.history.state(
            about.id, about.label, columns.position[row], step.stamp_ns, present=present, relation=relation,
            target=target, camera=step.camera,
        )  # fmt: skip

    def support(self, node_id: str) -> tuple[str, str]:
        """Return the relation and the node by which ``node_id`` is where it is: a hand, else the smallest box."""
        columns = self.columns
        found = [(relation != "held_by", float(np.prod(columns.half[columns.row_of[target]])), relation, target)
                 for target, relation in self.scene.related(node_id).items() if relation in _SUPPORTS]  # fmt: skip
        return min(found)[2:] if found else ("", "")

    def _current(self, row: int) -> int:
        found = self.history.current(self.columns.about(row).id)
        return -1 if found is None else found

    def _believed_there(self, row: int) -> bool:
        fact = self._current(row)
        return fact >= 0 and bool(self.history.present[fact])

    def _event(self, kind: str, row: int, step: _Step, before: np.ndarray | None = None, other: str = "") -> None:
        about = self.columns.about(row)
        place = self.columns.position[row].copy()
        step.events.append(GraphEvent(kind, about.id, about.label, step.stamp_ns, place, before, other, step.evidence))

    # -- from outside --------------------------------------------------------------------------------------------

    def undo_merge(self, number: int, stamp_ns: int, who: str) -> GraphUpdate:
        """Take a merge back; raises InvalidInputError when there is no such merge, with those there are."""
        step = _Step(stamp_ns, "", who)
        self._split(number, step)
        return self._finish(step)

    def merge_nodes(self, kept_id: str, gone_id: str, stamp_ns: int, who: str) -> GraphUpdate:
        """Say that two nodes are one object; raises UnknownNameError for an id that is not there."""
        step = _Step(stamp_ns, "", who)
        self._merge(self.scene.row(kept_id), self.scene.row(gone_id), step)
        return self._finish(step)


def agent(node_id: str, name: str, pose: Pose, stamp_ns: int, evidence: str = "") -> SceneNode:
    """Return the node of a robot that stands at ``pose``."""
    return SceneNode(
        node_id, "agent", name, pose, np.eye(3) * 1e-6, np.full(3, 0.1), np.full(3, 0.5),
        np.zeros(EMBEDDING_DIM, np.float32), 1.0, "visible", stamp_ns, stamp_ns, 1, evidence, evidence,
    )  # fmt: skip


def _origin() -> Pose:
    return Pose(np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]))


def _check_frames(scene: SceneObservation, frame: str) -> None:
    frames = {scene.camera_pose.frame, *(seen.pose.frame for seen in scene.objects)}
    if scene.hand is not None:
        frames.add(scene.hand.pose.frame)
    if scene.body is not None:
        frames.add(scene.body.pose.frame)
    if frames != {frame}:
        raise InvalidInputError(f"SceneObservation of {scene.camera!r}: frames {sorted(frames)}, valid: {frame}")
