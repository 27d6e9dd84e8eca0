"""The robot's memory of its workcell: observations in, a scene graph, answers and context tokens out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from engram.core.contracts import Memory, MemoryAnswer, MemoryQuery
from engram.core.errors import InvalidInputError
from engram.core.types import (
    EMBEDDING_DIM,
    DetectedObject,
    GraphUpdate,
    MemoryTokens,
    Pose,
    SceneEdge,
    SceneNode,
    SceneObservation,
)
from engram.memory.association import AssociationConfig, assign, resembles
from engram.memory.context import ContextConfig, context_tokens
from engram.memory.fusion import FusionConfig, born, fuse, missed
from engram.memory.relations import RelationConfig, relations
from engram.memory.retrieval import Encoder, RetrievalConfig, answer, text_embedder
from engram.memory.scene_graph import SceneGraph
from engram.memory.store import GraphStore
from engram.memory.visibility import FILLED, FREE, OCCLUDED, UNSEEN, VisibilityConfig, look


@dataclass(frozen=True)
class GraphMemoryConfig:
    """All settings of the memory."""

    absent_below: float = 0.2
    """An object believed less than this is ``absent``."""
    confirmed_after: int = 3
    """An object given up with fewer sights than this was a false detection: it is deleted, and the delta says so."""
    association: AssociationConfig = field(default_factory=AssociationConfig)
    context: ContextConfig = field(default_factory=ContextConfig)
    fusion: FusionConfig = field(default_factory=FusionConfig)
    relations: RelationConfig = field(default_factory=RelationConfig)
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    visibility: VisibilityConfig = field(default_factory=VisibilityConfig)


def table(top_z: float = 0.0) -> SceneNode:
    """Return the place every tabletop task happens on: 1.2 x 1.6 m in front of the robot, top at ``top_z`` m."""
    return SceneNode(
        id="",
        layer="place",
        label="table",
        pose=Pose(np.array([0.5, 0.0, top_z - 0.02]), np.array([1.0, 0.0, 0.0, 0.0])),
        position_covariance=np.zeros((3, 3)),
        size=np.array([1.2, 1.6, 0.04]),
        color=np.full(3, 0.5),
        embedding=np.zeros(EMBEDDING_DIM, np.float32),
        belief=1.0,
        state="visible",
        first_seen_ns=0,
        last_seen_ns=0,
        observations=0,
    )


class GraphMemory(Memory):
    """Scene graph of objects, kept in RAM and, with a ``store``, on disk.

    ``update`` never touches the disk; the caller decides when to ``commit`` (group commit). ``places`` are the
    known fixed parts of a new memory; their ids are issued here. Not thread-safe: one caller at a time.
    """

    def __init__(
        self,
        store: GraphStore | None = None,
        config: GraphMemoryConfig | None = None,
        encoder: Encoder | None = None,
        places: Sequence[SceneNode] | None = None,
    ) -> None:
        self.config = config or GraphMemoryConfig()
        self._store = store
        self._embed = text_embedder(encoder)
        self._scene = SceneGraph()
        self._sequence = 0
        self._stamp_ns = 0
        self._label_votes: dict[str, dict[str, float]] = {}
        self._last_camera: dict[str, str] = {}
        self._placed: dict[str, np.ndarray] = {}
        self._changed: set[str] = set()
        self._removed: set[str] = set()
        stored = store.load() if store else None
        if stored:
            self._scene.restore(stored.nodes, stored.issued)
            self._sequence, self._stamp_ns = stored.sequence, stored.stamp_ns
            self._relate(None)
            for node in stored.nodes:
                self._displaced(node)
        else:
            for place in (table(),) if places is None else places:
                self._put(replace(place, id=self._scene.new_id(place.layer)))

    def update(self, scene: SceneObservation) -> GraphUpdate:
        """Take in one frame and return what changed; the sequence grows by one if anything did.

        Raises:
            InvalidInputError: an object or the camera is not in ``base_link``.
        """
        _check_frames(scene)
        known = self._scene.nodes("object")
        places = np.array([node.pose.position for node in known]).reshape(-1, 3)
        sizes = np.array([node.size for node in known]).reshape(-1, 3)
        verdict = look(scene, places, sizes, self.config.visibility)
        vacated = (verdict == FREE) | np.array([node.state == "absent" for node in known], bool)
        found = assign(known, scene.objects, vacated, self.config.association)

        changed: dict[str, SceneNode] = {}
        pairs = [(known[i], scene.objects[j]) for i, j in found.stayed + found.moved]
        labels = [self._vote(node, seen, scene.camera) for node, seen in pairs]
        fused = fuse([n for n, _ in pairs], [s for _, s in pairs], labels, scene.stamp_ns, self.config.fusion)
        changed |= {node.id: node for node in fused}
        for j in found.new:
            node = born(self._scene.new_id("object"), scene.objects[j], scene.stamp_ns, self.config.fusion)
            self._label_votes[node.id] = {node.label: scene.objects[j].score}
            self._last_camera[node.id] = scene.camera
            changed[node.id] = node
        for node, seen_as in zip(known, verdict, strict=True):
            if node.id not in changed:
                after = self._not_seen(node, int(seen_as), scene.camera)
                if after is not node:
                    changed[node.id] = after
        deleted = self._settle(changed)
        return self._delta(scene.stamp_ns, changed, deleted)

    def query(self, query: MemoryQuery) -> MemoryAnswer:
        """Return the objects and agents that fit ``query``, best first."""
        return answer(self._scene.nodes("object", "agent"), query, self._embed, self.config.retrieval)

    def context(self, instruction: str, stamp_ns: int) -> MemoryTokens:
        """Return k tokens (k, 384) of the objects that matter for ``instruction``."""
        nodes = self._scene.nodes("object")
        return context_tokens(nodes, instruction, stamp_ns, self._sequence, self._embed, self.config.context)

    def graph(self, at_ns: int | None = None) -> GraphUpdate:
        """Return everything there is; the past (``at_ns``) is not kept yet."""
        if at_ns is not None:
            raise InvalidInputError(f"at_ns: {at_ns}, only None (now) is known to this memory")
        nodes = tuple(self._scene.nodes())
        return GraphUpdate(self._stamp_ns, self._sequence, True, nodes, self._scene.edges())

    def commit(self) -> int:
        """Write what changed since the last commit; 0 without a store: nothing survives a crash."""
        if self._store is None:
            return 0
        nodes = [self._scene.node(node_id) for node_id in sorted(self._changed)]
        durable = self._store.commit(nodes, self._removed, self._sequence, self._stamp_ns, self._scene.issued)
        self._changed.clear()
        self._removed.clear()
        return durable

    def _vote(self, node: SceneNode, seen: DetectedObject, camera: str) -> str:
        """Count the label of a sight and return the one most seen so far."""
        votes = self._label_votes.setdefault(node.id, {node.label: float(min(node.observations, 10))})
        votes[seen.label] = votes.get(seen.label, 0.0) + seen.score
        self._last_camera[node.id] = camera
        return max(sorted(votes), key=votes.__getitem__)

    def _not_seen(self, node: SceneNode, verdict: int, camera: str) -> SceneNode:
        """Absence is evidence only where the camera looked; only the camera that saw it last says it is out of view."""
        if node.state == "absent":
            return node
        if verdict in (FREE, FILLED):
            return missed(node, verdict == FILLED, self.config.absent_below, self.config.fusion)
        state = {OCCLUDED: "occluded", UNSEEN: "unseen"}[verdict]
        if node.state == state or self._last_camera.get(node.id, camera) != camera:
            return node
        return replace(node, state=state)

    def _settle(self, changed: dict[str, SceneNode]) -> list[str]:
        """Objects that just became absent: false detections go, an object that turned up elsewhere keeps its id."""
        deleted: list[str] = []
        for node in [n for n in changed.values() if n.state == "absent"]:
            twin = self._twin(node, changed, deleted)
            if twin is not None:
                changed[node.id] = replace(
                    twin,
                    id=node.id,
                    first_seen_ns=node.first_seen_ns,
                    observations=node.observations + twin.observations,
                )
                if twin.id in self._label_votes:
                    self._label_votes[node.id] = self._label_votes.pop(twin.id)
                if twin.id in self._last_camera:
                    self._last_camera[node.id] = self._last_camera.pop(twin.id)
                deleted.append(twin.id)
            elif node.observations < self.config.confirmed_after:
                deleted.append(node.id)
        for node_id in deleted:
            changed.pop(node_id, None)
        return deleted

    def _twin(self, node: SceneNode, changed: dict[str, SceneNode], taken: list[str]) -> SceneNode | None:
        """Return the one object like ``node`` that was first seen after ``node`` was last seen."""
        current = {n.id: n for n in self._scene.nodes("object")} | changed
        alike = [
            other
            for other in current.values()
            if other.id not in taken
            and other.state != "absent"
            and other.first_seen_ns > node.last_seen_ns
            and resembles(node, other, self.config.association)
        ]
        return alike[0] if len(alike) == 1 else None

    def _delta(self, stamp_ns: int, changed: dict[str, SceneNode], deleted: list[str]) -> GraphUpdate:
        gone = tuple(node_id for node_id in deleted if node_id in self._scene.graph)
        touched = {node.id for node in changed.values() if self._displaced(node)}
        for node in changed.values():
            self._put(node)
        added, removed = self._relate(touched | set(gone), gone)
        for node_id in gone:
            self._scene.remove(node_id)
            self._placed.pop(node_id, None)
            self._changed.discard(node_id)
            self._removed.add(node_id)
        self._stamp_ns = max(self._stamp_ns, stamp_ns)
        if changed or gone:
            self._sequence += 1
        return GraphUpdate(
            stamp_ns, self._sequence, False, tuple(changed.values()), added, deleted_nodes=gone, deleted_edges=removed
        )

    def _displaced(self, node: SceneNode) -> bool:
        """Whether ``node`` left the box that its relations were computed for, by more than noise."""
        here = np.concatenate((node.pose.position, node.size, (float(node.state == "absent"),)))
        before = self._placed.get(node.id)
        if before is not None and np.abs(here - before).max() <= self.config.relations.resting_m:
            return False
        self._placed[node.id] = here
        return True

    def _relate(
        self, touched: set[str] | None, gone: Sequence[str] = ()
    ) -> tuple[tuple[SceneEdge, ...], tuple[SceneEdge, ...]]:
        """Bring the relations of ``touched`` nodes (None = of all) up to date."""
        if touched is not None and not touched:
            return (), ()
        there = [node for node in self._scene.nodes() if node.state != "absent" and node.id not in gone]
        wanted = relations(there, self.config.relations, touched)
        return self._scene.set_edges(wanted, touched)

    def _put(self, node: SceneNode) -> None:
        self._scene.put(node)
        self._changed.add(node.id)


def _check_frames(scene: SceneObservation) -> None:
    frames = {scene.camera_pose.frame, *(seen.pose.frame for seen in scene.objects)}
    if frames != {"base_link"}:
        raise InvalidInputError(f"SceneObservation of {scene.camera!r}: frames {sorted(frames)}, valid: base_link")
