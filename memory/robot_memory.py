"""One memory of four stores: scene graph, short-term, episodic, semantic. Written and read side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from engram.core.contracts import MemoryAnswer, MemoryQuery, MemoryStore, TaskMemory
from engram.core.types import Embodiment, Evidence, GraphUpdate, MemoryTokens, SceneNode, SceneObservation
from engram.memory.graph.context import Case, with_cases
from engram.memory.graph.tracker import Tracker
from engram.memory.graph_memory import GraphMemory, GraphMemoryConfig
from engram.memory.merging.fleet import FleetReport
from engram.memory.query.answer import answer, with_evidence
from engram.memory.query.current import Encoder
from engram.memory.storage.se2 import PlaneTransform
from engram.memory.storage.store import GraphStore, Stored
from engram.memory.stores.episodic.store import EpisodicConfig, EpisodicMemory
from engram.memory.stores.semantic.store import SemanticConfig, SemanticMemory
from engram.memory.stores.short_term.store import ShortTermConfig, ShortTermMemory

_SKILLS = 64
"""Pairs of task and policy version in a robot's profile, those tried last; semantic memory keeps more."""


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


_WORTH_A_THREAD_S = 0.02
"""A store that usually answers later than this is asked on its own thread. Python's threads share one lock: to hand
over a question that is answered by computing costs more than it saves, unless the answer has to be waited for."""
_NEWEST = 0.1
"""Weight of the newest answer in what is usual."""


class _Lane:
    """One store: its calls run in order, those of different stores side by side.

    What it takes in, it takes in on a thread of its own. A question is answered there too while that is going on, or
    when answers usually take long; else by the caller's thread.
    """

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=store.name)
        self._writes: list[Future[object]] = []
        self._last: Future[Any] | None = None  # given to the thread; when it is done, so are those before it
        self._usual_s: float | None = None

    @property
    def apart(self) -> bool:
        """Whether the next question goes to the store's own thread."""
        return self._busy or (self._usual_s is not None and self._usual_s > _WORTH_A_THREAD_S)

    @property
    def _busy(self) -> bool:
        return self._last is not None and not self._last.done()

    def write(self, call: Callable[[], object]) -> None:
        """Queue ``call``; what it raises comes out of the next :meth:`settle`."""
        self._writes = [write for write in self._writes if not write.done() or write.exception()]
        self._writes.append(self._queue(call))

    def read(self, call: Callable[[], Any]) -> Future[Any]:
        """Run ``call`` after everything that was written before: at once when there is nothing to wait for."""
        return self._queue(call) if self._busy else _done(call)

    def recall(self, query: MemoryQuery) -> Future[tuple[Evidence, ...]]:
        """Ask the store, after everything that was written before."""
        call = partial(self._timed_recall, query)
        return self._queue(call) if self.apart else _done(call)

    def settle(self) -> None:
        """Wait for what was written; raise what went wrong."""
        writes, self._writes = self._writes, []
        for write in writes:
            write.result()

    def close(self) -> None:
        """Finish what was queued and end the thread."""
        self._thread.shutdown()

    def _queue(self, call: Callable[[], Any]) -> Future[Any]:
        self._last = self._thread.submit(call)
        return self._last

    def _timed_recall(self, query: MemoryQuery) -> tuple[Evidence, ...]:
        begin = time.perf_counter()
        found = self.store.recall(query)
        took = time.perf_counter() - begin
        self._usual_s = took if self._usual_s is None else self._usual_s + _NEWEST * (took - self._usual_s)
        return found


def _done(call: Callable[[], Any]) -> Future[Any]:
    """Return what ``call`` gave or raised, called here."""
    future: Future[Any] = Future()
    try:
        future.set_result(call())
    except Exception as error:  # noqa: BLE001 - whoever asks for the result gets it
        future.set_exception(error)
    return future


class RobotMemory(TaskMemory):
    """The scene graph answers; the other stores live on what changes in it and add what they remember.

    ``update`` returns when the scene graph has the frame; the other stores take the change in on threads of their
    own, and whoever asks them next waits for them. ``commit`` makes all four durable in one atomic step. One caller
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
        self._lanes = {store.name: _Lane(store) for store in (self.short_term, self.episodic, self.semantic)}
        self._cases: tuple[str, Future[tuple[Case, ...]] | None] = ("", None)  # instruction, chosen for it
        known = self.scene.graph()
        for name, lane in self._lanes.items():
            lane.store.restore(self.scene.restored.get(name, ()))
            lane.store.update(replace(known, events=()), known.stamp_ns)

    @property
    def tracker(self) -> Tracker:
        """What the scene graph is kept by."""
        return self.scene.tracker

    def update(self, scene: SceneObservation) -> GraphUpdate:
        """Take in one frame and return what changed in the scene graph."""
        return self._share(self.scene.update(scene))

    def query(self, query: MemoryQuery) -> MemoryAnswer:
        """Return what fits ``query`` with the evidence of all stores, the busy and the slow ones side by side."""
        query = self.scene.embedded(query)
        if query.ability:
            self._tell_skills()
        about_things = query.ability in ("", "do")  # the other abilities are the scene graph's alone
        asked = tuple(self._lanes) if about_things else ()
        first = sorted(asked, key=lambda name: not self._lanes[name].apart)  # they work while the others are asked
        reads = {name: self._lanes[name].recall(query) for name in first}
        hits = self.scene.search(query, self._still_there)
        found = answer(self.scene.tracker, query, hits, self.config.graph.advice, self._usual)
        more: list[Evidence] = [one for name in asked for one in reads[name].result()]
        for lane in self._lanes.values():
            lane.settle()
        if hits.nodes and hits.nodes[0].layer == "object":
            node = hits.nodes[0]
            self._lanes["short_term"].write(lambda: self.short_term.asked(node.id, node.label))
        return with_evidence(found, more)

    def context(self, instruction: str, stamp_ns: int) -> MemoryTokens:
        """Return the tokens of the objects that matter for ``instruction``, and of past tasks like the running one.

        The cases are chosen when the task begins and stay until the next one.
        """
        tokens, (chosen_for, chosen) = self.scene.context(instruction, stamp_ns), self._cases
        return with_cases(tokens, chosen.result()) if chosen is not None and chosen_for == instruction else tokens

    def graph(self, at_ns: int | None = None) -> GraphUpdate:
        """Return the scene graph, now or as it was at ``at_ns``."""
        return self.scene.graph(at_ns)

    def commit(self) -> int:
        """Make all four stores durable in one atomic step; return the sequence that survives a crash."""
        if self.scene.store is None:
            return 0
        for lane in self._lanes.values():
            lane.settle()
        self._tell_skills()
        for name, state in [(n, lane.read(lane.store.state)) for n, lane in self._lanes.items()]:
            for record in state.result().changed:
                self.scene.records.put(name, record)
            for key in state.result().removed:
                self.scene.records.remove(name, key)
        return self.scene.commit()

    # -- what the world says beside its looks --------------------------------------------------------------------

    def introduce(self, agent: str, embodiment: Embodiment, stamp_ns: int) -> GraphUpdate:
        """Say what the robot is whose memory this is; return what that changed."""
        return self._share(self.scene.introduce(agent, embodiment, stamp_ns))

    def begin_episode(self, task: str, instruction: str, stamp_ns: int) -> None:
        """A task begins."""
        lane, count = self._lanes["episodic"], self.config.graph.context.cases
        lane.write(lambda: self.episodic.begin(task, instruction, stamp_ns))
        self._cases = (instruction, lane.read(lambda: self.episodic.cases(instruction, count)))

    def end_episode(
        self, task: str, outcome: str, stamp_ns: int, memory_ids: tuple[str, ...] = (), policy_version: str = ""
    ) -> None:
        """A task ended; credit goes to the memories that its actions used, and the skill's rate counts it."""
        value = {"succeeded": 1.0, "failed": 0.0}.get(outcome)
        self._lanes["episodic"].write(lambda: self.episodic.end(outcome, value, stamp_ns, memory_ids, policy_version))
        if value is not None:
            self._lanes["semantic"].write(lambda: self.semantic.skill(task, policy_version, value > 0, stamp_ns))

    def consolidate(self, budget_s: float) -> None:
        """Let the semantic memory distil habits for at most ``budget_s`` of its own thread's time."""
        self._lanes["semantic"].write(lambda: self.semantic.consolidate(budget_s))

    def merge_from(self, stored: Stored, robot: str, guess: PlaneTransform | None = None) -> FleetReport:
        """Merge another robot's memory in, as a partition of the graph: see :mod:`engram.memory.merging.fleet`."""
        report = self.scene.merge_from(stored, robot, guess)
        self._share(self.graph())
        return report

    def unmerge(self, robot: str) -> int:
        """Take the partition of ``robot`` out again; see :func:`engram.memory.merging.fleet.unmerge`."""
        count = self.scene.unmerge(robot)
        self._share(self.graph())
        return count

    def join(self, kept_id: str, gone_id: str, who: str) -> tuple[int, GraphUpdate]:
        """Make two objects one; see :func:`engram.memory.merging.fleet.join`."""
        number, change = self.scene.join(kept_id, gone_id, who)
        return number, self._share(change)

    def keep_apart(self, a: str, b: str) -> GraphUpdate:
        """Decide a conflict; see :func:`engram.memory.merging.fleet.keep_apart`."""
        return self.scene.keep_apart(a, b)

    def undo_merge(self, number: int, who: str) -> GraphUpdate:
        """Take a merge of two nodes back; raises InvalidInputError with those that stand."""
        return self._share(self.scene.undo_merge(number, who))

    @property
    def busy(self) -> bool:
        """Whether the store deletes old snapshots: a commit would wait for that."""
        return self.scene.busy

    def bytes_used(self) -> dict[str, int]:
        """Return what each store holds of RAM."""
        reads = {name: lane.read(lane.store.bytes_used) for name, lane in self._lanes.items()}
        return {"graph": self.scene.bytes_used()} | {name: read.result() for name, read in reads.items()}

    def close(self) -> None:
        """End the threads; may be called twice. What was not committed is lost."""
        for lane in self._lanes.values():
            lane.close()

    def _tell_skills(self) -> None:
        """Write what the semantic memory knows of the robot's skills into its profile."""
        skills = self._lanes["semantic"].read(self.semantic.skills).result()
        self.scene.tracker.bodies.learnt(skills[-_SKILLS:])

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
