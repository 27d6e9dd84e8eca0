"""The robot memory: four stores (scene graph, short-term, episodic, semantic) written and read in parallel."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from engram.core.contracts import Memory, MemoryAnswer
from engram.core.errors import InvalidInputError, StoreError
from engram.core.questions import AtTime, Capability, Question, Selection
from engram.core.stamped_buffer import WALL_CLOCK_NS
from engram.core.types import (
    MOST_SKILLS,
    Embodiment,
    Evidence,
    GraphUpdate,
    MemoryTokens,
    SceneNode,
    SceneObservation,
)
from engram.memory.graph.text_embedding import Encoder
from engram.memory.graph.tracker import Tracker
from engram.memory.graph_memory import GraphMemory, GraphMemoryConfig, opened_config
from engram.memory.query.assemble import with_evidence
from engram.memory.query.language import parse
from engram.memory.query.registry import answer
from engram.memory.query.times import QuestionConfig
from engram.memory.storage.snapshots import Stored, read_snapshot
from engram.memory.storage.store import GraphStore, GraphStoreConfig
from engram.memory.stores.episodic.store import EpisodicConfig, EpisodicMemory
from engram.memory.stores.lane import StoreLane
from engram.memory.stores.semantic.store import SemanticConfig, SemanticMemory
from engram.memory.stores.short_term.store import ShortTermConfig, ShortTermMemory

CONSOLIDATION_S = 2.0
"""CPU time that opening a memory to read may spend on habits, which the store keeps as counts [s]."""


@dataclass(frozen=True)
class RobotMemoryConfig:
    """All settings of the four stores."""

    graph: GraphMemoryConfig = field(default_factory=GraphMemoryConfig)
    short_term: ShortTermConfig = field(default_factory=ShortTermConfig)
    episodic: EpisodicConfig = field(default_factory=EpisodicConfig)
    semantic: SemanticConfig = field(default_factory=SemanticConfig)

    def within(self, budget_mb: float) -> RobotMemoryConfig:
        """Return these settings with ``budget_mb`` of RAM divided among the stores as the defaults divide 256."""
        share = budget_mb / 256
        return RobotMemoryConfig(
            replace(self.graph, budget_mb=148 * share),
            replace(self.short_term, budget_mb=12 * share),
            replace(self.episodic, budget_mb=64 * share),
            replace(self.semantic, budget_mb=32 * share),
        )


class RobotMemory(Memory):
    """The scene graph answers questions; the other stores follow its changes and add evidence.

    ``update`` returns when the scene graph has the frame. The other stores process the change on their own threads, and
    the next question waits for them. ``commit`` makes all four durable in one atomic step. One caller
    at a time, as every Memory.
    """

    def __init__(
        self,
        store: GraphStore | None = None,
        config: RobotMemoryConfig | None = None,
        encoder: Encoder | None = None,
        places: Sequence[SceneNode] | None = None,
        stored: Stored | None = None,
    ) -> None:
        self.config = config or RobotMemoryConfig()
        self.scene = GraphMemory(store, self.config.graph, encoder, places, stored)
        self.short_term = ShortTermMemory(self.config.short_term)
        self.episodic = EpisodicMemory(self.scene.embed, self.config.episodic)
        self.semantic = SemanticMemory(self.scene.embed, self.config.semantic)
        self._lanes = {store.name: StoreLane(store) for store in (self.short_term, self.episodic, self.semantic)}
        self._owns_store = self._read_only = self._closed = False
        known = self.scene.graph()
        for name, lane in self._lanes.items():
            lane.store.restore(self.scene.restored.get(name, ()))
            lane.store.update(replace(known, events=()), known.stamp_ns)
        if store is not None:  # the process that carried out a task is gone; who only reads has a writer beside it
            self.episodic.interrupt(known.stamp_ns)

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        read_only: bool = False,
        snapshot: str = "",
        frame: str | None = None,
        map_name: str | None = None,
        places: Sequence[SceneNode] = (),
        encoder: Encoder | None = None,
        config: RobotMemoryConfig | None = None,
        fsync: bool = False,
    ) -> Self:
        """Open the memory stored in the folder ``path``, or create it there.

        Args:
            path: the store's folder, for example ``~/.local/share/engram/<robot_id>/memory``.
            read_only: take no lock, so that it works beside a running memory node. Nothing can be written.
            snapshot: id of a past state to open instead of the newest; only with ``read_only``.
            frame: of all poses: ``base_link`` for an arm on its table, ``map`` for a robot that drives. Default:
                what the store says, ``base_link`` for a new one.
            map_name: name and version of the map that ``frame`` belongs to. Default: what the store says.
            places: fixed rooms and places; those whose label the store does not know yet are added.
            encoder: embeds labels and questions; default: MiniLM, loaded when it is first needed.
            config: all other settings.
            fsync: each commit survives a power cut, at the cost in docs/how-to/manage_the_memory_store.md. Without it,
                a commit survives the end of the process, and a power cut may take the last seconds.

        Raises:
            StoreError: there is no store (with ``read_only``), it is damaged, another process writes it, the disk is
                full or cannot be written, or its places belong to another frame or map.
        """
        path = Path(path).expanduser()
        if snapshot and not read_only:
            raise InvalidInputError(f"snapshot {snapshot!r}: a past state opens with read_only=True alone")
        store = None if read_only else GraphStore(path, GraphStoreConfig(fsync=fsync))
        try:
            stored = store.load() if store is not None else read_snapshot(path, snapshot or None)
            if stored is None and read_only:
                raise StoreError(f"{path}: the store is empty")
            config = config or RobotMemoryConfig()
            config = replace(config, graph=opened_config(config.graph, stored, frame, map_name))
            memory = cls(store, config, encoder, places, stored)
        except BaseException:
            if store is not None:
                store.close()
            raise
        memory._owns_store, memory._read_only = True, read_only
        if read_only:
            memory.consolidate(CONSOLIDATION_S)
        return memory

    def __enter__(self) -> Self:
        """Return the memory; :meth:`close` runs at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; after an exception, what was not committed is dropped."""
        self.close(commit=kind is None)

    @property
    def now_ns(self) -> int:
        """The present on the clock of the memory's stamps: the wall clock, or the newest stamp of a simulation."""
        newest = self.scene.tracker.stamp_ns
        return time.time_ns() if newest == 0 or newest > WALL_CLOCK_NS else newest

    def ask(
        self,
        question: str,
        *,
        now_ns: int | None = None,
        limit: int = 5,
        robot_place: np.ndarray | None = None,
        utc_offset_h: float | None = None,
    ) -> MemoryAnswer:
        """Answer a question in English, such as "where was the red cup before lunch".

        Args:
            question: see :mod:`engram.memory.query.language` for what is understood.
            now_ns: when it is asked; default: :attr:`now_ns`.
            limit: most objects and pieces of evidence in the answer.
            robot_place: (3,) m, where a search begins: the advice weighs the way to a place against its chance.
                Default: where the memory's own robot stands, if it drives and has told.
            utc_offset_h: local time less UTC [h], for times of day; default: the time zone of this machine.

        Raises:
            InvalidInputError: the question names a time that does not exist or is still to come.
            UnknownNameError: it is about something that the memory has never known; lists what it knows.
        """
        if not question.strip(" ?"):
            raise InvalidInputError('question: empty; ask for example "where is the red cup"')
        asked = parse(question, self.now_ns if now_ns is None else now_ns, limit, QuestionConfig(utc_offset_h))
        return self.query(asked.refined(robot_place=robot_place))

    @property
    def tracker(self) -> Tracker:
        """The tracker that keeps the scene graph."""
        return self.scene.tracker

    def update(self, scene: SceneObservation) -> GraphUpdate:
        """Take in one frame and return what changed in the scene graph."""
        self._check_writable("update")
        if not isinstance(scene, SceneObservation):
            raise InvalidInputError(f"update: got a {type(scene).__name__}, expected a SceneObservation")
        return self._share(self.scene.update(scene))

    def query(self, question: Question) -> MemoryAnswer:
        """Return what answers ``question`` with the evidence of all stores, which work in parallel.

        Raises:
            UnknownNameError: it is about something that the memory has never known, or of an unknown kind.
        """
        self._check_open()
        kind = question.question if isinstance(question, AtTime) else question
        if isinstance(kind, Capability):
            self._publish_skills()
        context = replace(
            self.scene.query_context(), stays=self._still_there, usual=self._usual,
            past=lambda: self._lanes["episodic"].read(self.episodic.past).result(),
            recent=lambda: self._lanes["short_term"].read(self.short_term.recent).result(),
        )  # fmt: skip
        chosen = question.selection()
        reads = {} if chosen is None else self._recall(context.embedded(chosen))
        found = answer(question, context)
        more = [one for name in self._lanes if name in reads for one in reads[name].result()]
        for lane in self._lanes.values():
            lane.settle()
        if found.nodes and found.nodes[0].layer == "object":
            node = found.nodes[0]
            self._lanes["short_term"].write(lambda: self.short_term.asked(node.id, node.label))
        return with_evidence(found, more)

    def _recall(self, chosen: Selection) -> dict[str, Future[tuple[Evidence, ...]]]:
        """Ask the other stores, slow ones first."""
        order = sorted(self._lanes, key=lambda name: not self._lanes[name].is_asynchronous)
        return {name: self._lanes[name].recall(chosen) for name in order}

    def context(self, instruction: str, stamp_ns: int) -> MemoryTokens:
        """Return the tokens of the objects that matter for ``instruction``."""
        self._check_open()
        return self.scene.context(instruction, stamp_ns)

    def graph(self, at_ns: int | None = None) -> GraphUpdate:
        """Return the scene graph, now or as it was at ``at_ns``."""
        self._check_open()
        return self.scene.graph(at_ns)

    def commit(self) -> int:
        """Make all four stores durable in one atomic step; return the sequence that survives a crash."""
        self._check_writable("commit")
        for lane in self._lanes.values():
            lane.settle()
        if self.scene.store is None:
            for lane in self._lanes.values():  # which keeps each within its budget; nobody keeps what changed
                lane.read(lane.store.state).result()
            return self.scene.commit()
        self._publish_skills()
        for name, state in [(n, lane.read(lane.store.state)) for n, lane in self._lanes.items()]:
            for record in state.result().changed:
                self.scene.records.put(name, record)
            for key in state.result().removed:
                self.scene.records.remove(name, key)
        return self.scene.commit()

    # -- the robot and its tasks ---------------------------------------------------------------------------------

    def introduce(self, agent: str, embodiment: Embodiment, stamp_ns: int) -> GraphUpdate:
        """Say what the robot is whose memory this is; return what that changed."""
        self._check_writable("introduce")
        return self._share(self.scene.introduce(agent, embodiment, stamp_ns))

    def begin_episode(self, task: str, instruction: str, stamp_ns: int, under_way: bool = False) -> None:
        """A task begins, or goes on after a restart."""
        self._check_open()
        self._lanes["episodic"].write(lambda: self.episodic.begin(task, instruction, stamp_ns, under_way))

    def end_episode(
        self, task: str, outcome: str, stamp_ns: int, memory_ids: tuple[str, ...] = (), policy_version: str = ""
    ) -> None:
        """A task ended: it is kept with the memories that its actions used, and the skill's rate counts it."""
        self._check_open()
        value = {"succeeded": 1.0, "failed": 0.0}.get(outcome)
        self._lanes["episodic"].write(lambda: self.episodic.end(outcome, value, stamp_ns, memory_ids, policy_version))
        if value is not None:
            self._lanes["semantic"].write(lambda: self.semantic.skill(task, policy_version, value > 0, stamp_ns))

    def consolidate(self, budget_s: float) -> None:
        """Let the semantic memory distil habits for at most ``budget_s`` of its own thread's time."""
        self._check_open()
        self._lanes["semantic"].write(lambda: self.semantic.consolidate(budget_s))

    def publish(self, change: GraphUpdate) -> GraphUpdate:
        """Pass a change that was made in the tracker on to the other stores, as merging does; return it."""
        self._check_writable("publish")
        return self._share(self.scene.publish(change))

    def undo_merge(self, number: int, who: str) -> GraphUpdate:
        """Take a merge of two nodes back; raises InvalidInputError with those that stand."""
        self._check_writable("undo_merge")
        return self._share(self.scene.undo_merge(number, who))

    @property
    def busy(self) -> bool:
        """Whether the store deletes old snapshots: a commit would wait for that."""
        return self.scene.busy

    def bytes_used(self) -> dict[str, int]:
        """Return the RAM used by each store [bytes]."""
        reads = {name: lane.read(lane.store.bytes_used) for name, lane in self._lanes.items()}
        return {"graph": self.scene.bytes_used()} | {name: read.result() for name, read in reads.items()}

    def close(self, commit: bool = True) -> None:
        """End the threads; may be called twice.

        A memory from :meth:`open` commits first (unless ``commit`` is False) and lets the next writer in. One that was
        given its store leaves both to whoever owns the store.
        """
        store, owned = self.scene.store, self._owns_store
        self._owns_store = False
        try:
            if owned and commit and store is not None:
                self.commit()
        finally:
            for lane in self._lanes.values():
                lane.close()
            self._closed = True
            if owned and store is not None:
                store.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the memory is closed: open it again")

    def _check_writable(self, action: str) -> None:
        self._check_open()
        if self._read_only:
            raise InvalidInputError(f"{action}: the memory was opened with read_only=True")

    def _publish_skills(self) -> None:
        """Write what the semantic memory knows of the robot's skills into its profile."""
        skills = self._lanes["semantic"].read(self.semantic.skills).result()
        self.scene.tracker.agents.learnt(skills[-MOST_SKILLS:])

    def _still_there(self, nodes: Sequence[SceneNode], now_ns: int) -> list[float | None]:
        """Return the chance that each of ``nodes`` is where it was last seen, by what its like did."""
        semantic = self.semantic
        stays = self._lanes["semantic"].read(lambda: [semantic.still_there(n.id, n.label, now_ns) for n in nodes])
        return [None if stay is None else stay.value for stay in stays.result()]

    def _usual(self, node: SceneNode) -> list[tuple[np.ndarray, float]]:
        """Return the usual places (3,) m of an object, each with its share of the stays."""
        usual = self._lanes["semantic"].read(lambda: self.semantic.usual_places(node.label, node.id)).result()
        return [(place.mean, visits.rate) for place, _, visits in usual]

    def _share(self, change: GraphUpdate) -> GraphUpdate:
        told = (change.events, change.nodes, change.deleted_nodes, change.edges, change.deleted_edges)
        if change.shifted_ns or any(told):
            for lane in self._lanes.values():
                lane.write(partial(lane.store.update, change, change.stamp_ns))
        return change
