"""The scene graph memory: observations in; a scene graph with its history, answers and context tokens out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from engram.core.contracts import Memory, MemoryAnswer
from engram.core.questions import Question, Selection
from engram.core.types import (
    Embodiment,
    GraphUpdate,
    MemoryTokens,
    Record,
    SceneEdge,
    SceneNode,
    SceneObservation,
)
from engram.memory.graph.completion import completed
from engram.memory.graph.context import ContextConfig, context_tokens
from engram.memory.graph.places import table
from engram.memory.graph.text_embedding import Encoder, text_embedder
from engram.memory.graph.tracker import Tracker
from engram.memory.graph.tracker_config import TrackerConfig
from engram.memory.graph.vectors import VectorIndex
from engram.memory.query import builtin  # noqa: F401 - registers the kinds of questions
from engram.memory.query.advice import AdviceConfig
from engram.memory.query.context import QueryContext
from engram.memory.query.hits import RetrievalConfig
from engram.memory.query.registry import answer
from engram.memory.query.temporal import chances, nodes_then
from engram.memory.storage.columns import ABSENT, ROW_BYTES
from engram.memory.storage.map_frames import Anchor, anchor_of, check_anchor
from engram.memory.storage.records import (
    RECORD_BYTES,
    LookedTable,
    RecordTable,
    Rows,
    fact_rows,
    node_rows,
    restore_history,
    restore_nodes,
)
from engram.memory.storage.snapshots import Stored
from engram.memory.storage.store import GraphStore

_MB = 1 << 20


@dataclass(frozen=True)
class GraphMemoryConfig:
    """All settings of the memory."""

    budget_mb: float = 148.0
    """RAM [MB]; above it the oldest facts are merged and dropped, then old merges and coverage,
    then absent objects; the present state is always kept."""
    map: str = ""
    """Name and version of the map that ``tracker.frame`` is in; a memory of another one is refused."""
    tracker: TrackerConfig = field(default_factory=TrackerConfig)
    context: ContextConfig = field(default_factory=ContextConfig)
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    advice: AdviceConfig = field(default_factory=AdviceConfig)


def opened_config(
    config: GraphMemoryConfig, stored: Stored | None, frame: str | None, map_name: str | None
) -> GraphMemoryConfig:
    """Return ``config`` with the frame and the map that are given, else those of ``stored``, else its own."""
    known = Anchor(config.tracker.frame, config.map) if stored is None else anchor_of(stored)
    tracker = replace(config.tracker, frame=known.frame if frame is None else frame)
    return replace(config, tracker=tracker, map=known.map if map_name is None else map_name)


class GraphMemory(Memory):
    """Scene graph and its history, kept in RAM and, with a ``store``, on disk.

    ``update`` never touches the disk; the caller decides when to ``commit`` (group commit). ``places`` are the
    known fixed parts; those that a stored memory does not have by label yet are added. Without a ``store`` it may
    begin with what a snapshot ``stored``. Not thread-safe: one caller at a time.
    """

    def __init__(
        self,
        store: GraphStore | None = None,
        config: GraphMemoryConfig | None = None,
        encoder: Encoder | None = None,
        places: Sequence[SceneNode] | None = None,
        stored: Stored | None = None,
    ) -> None:
        self.config = config or GraphMemoryConfig()
        self.store = store
        self.embed = text_embedder(encoder)
        self.tracker = Tracker(self.config.tracker)
        self.index = VectorIndex(self.tracker.columns)
        self._looked = LookedTable()
        self.records = RecordTable()
        self.restored: Mapping[str, Sequence[Record]] = {}  # records of other stores, for whoever owns them
        stored = store.load() if store else stored
        if stored:
            check_anchor(stored, self.anchor)
            self._restore(stored)
        else:
            places = (table(),) if places is None and self.config.tracker.frame == "base_link" else places
        labels = {node.label for node in self.tracker.scene.nodes("building", "room", "place")}
        for place in places or ():
            if place.label not in labels:
                pose = replace(place.pose, frame=self.config.tracker.frame)
                self.tracker.scene.put(replace(place, id=self.tracker.scene.new_id(place.layer), pose=pose))
        self.tracker.relation_updates.relate_all()

    def update(self, scene: SceneObservation) -> GraphUpdate:
        """Take in one frame and return what changed; the sequence grows by one if anything did.

        Raises:
            InvalidInputError: an object or the camera is not in ``base_link``.
        """
        update = self.publish(self.tracker.update(completed(scene, self.tracker.columns, self.embed)))
        self._stay_in_budget()
        return update

    def introduce(self, agent: str, embodiment: Embodiment, stamp_ns: int) -> GraphUpdate:
        """Say what the robot is whose memory this is; return what that changed."""
        return self.tracker.introduce(agent, embodiment, stamp_ns)

    def query(self, question: Question) -> MemoryAnswer:
        """Return the objects and agents that answer ``question``, best first, and what that means in words."""
        return answer(question, self.query_context())

    def query_context(self) -> QueryContext:
        """Return what questions are answered with: the graph alone, without what other stores know."""
        return QueryContext(self.tracker, self.index, self.embed, self.config.retrieval, self.config.advice)

    def context(self, instruction: str, stamp_ns: int) -> MemoryTokens:
        """Return k tokens (k, 384) of the objects that matter for ``instruction``."""
        columns, config = self.tracker.columns, self.config.context
        if instruction:
            rows, cosine = self.index.nearest(self.embed(instruction), 8 * config.tokens)
        else:
            rows = columns.rows("object")
            cosine = np.ones(len(rows))
        return context_tokens(columns, rows, cosine, stamp_ns, self.tracker.sequence, config)

    def graph(self, at_ns: int | None = None) -> GraphUpdate:
        """Return everything there is; with ``at_ns``, as it was then, by what is known today."""
        tracker = self.tracker
        if at_ns is None:
            nodes = tuple(tracker.scene.nodes())
            return GraphUpdate(tracker.stamp_ns, tracker.sequence, True, nodes, tracker.scene.edges())
        chosen = Selection(valid_ns=(at_ns, at_ns))
        history = tracker.history
        rows = history.select(chosen.valid_ns, None)
        rows = rows[np.argsort([history.words[number] for number in history.node[rows].tolist()], kind="stable")]
        facts = history.facts(rows)
        nodes = tuple(tracker.scene.nodes("building", "room", "place"))
        nodes += nodes_then(tracker, facts, chosen, chances(tracker, rows, chosen, self.config.retrieval).tolist())
        edges = tuple(SceneEdge(f.node_id, f.target, f.relation) for f in facts if f.target)
        return GraphUpdate(at_ns, tracker.sequence, True, nodes, edges)

    def commit(self) -> int:
        """Write what changed since the last commit; 0 without a store: nothing survives a crash."""
        self._stay_in_budget()
        if self.store is None:
            return 0
        durable = self.store.commit(self.writes(), self.tracker.sequence, self.tracker.stamp_ns, self.about())
        self.committed()
        return durable

    @property
    def busy(self) -> bool:
        """Whether the store deletes old snapshots: a commit would wait for that."""
        return self.store is not None and self.store.busy

    def undo_merge(self, number: int, who: str) -> GraphUpdate:
        """Take a merge of two nodes back; raises InvalidInputError with those that stand."""
        return self.publish(self.tracker.undo_merge(number, self.tracker.stamp_ns, who))

    def adopt(self, graph: GraphUpdate) -> None:
        """Begin an empty memory with a graph from elsewhere: what its nodes are is their first fact."""
        issued: dict[str, int] = {}
        for node in graph.nodes:
            self.tracker.scene.put(node)
            if node.embodiment is not None:
                self.tracker.embodiments.state(node.id, node.embodiment, graph.stamp_ns)
            number = node.id.rpartition("_")[2]
            issued[node.layer] = max(issued.get(node.layer, 0), int(number) if number.isdigit() else 0)
        self.tracker.scene.restore(issued)
        self._begin_history()
        self.tracker.relation_updates.relate_all()
        self.tracker.sequence, self.tracker.stamp_ns = max(1, graph.sequence), graph.stamp_ns

    # -- bounded growth ------------------------------------------------------------------------------------------

    def bytes_used(self) -> int:
        """Return the RAM used by nodes, facts, merges, conflicts, profiles, indexes and rows [bytes]."""
        tracker = self.tracker
        rows = RECORD_BYTES * len(self.records)
        journals = (tracker.merges, tracker.conflicts, tracker.embodiments, tracker.removed)
        parts = (tracker.columns, tracker.history, tracker.coverage, *journals, self.index)
        return rows + sum(part.bytes_used() for part in parts)

    def publish(self, change: GraphUpdate) -> GraphUpdate:
        """Bring the index up to date with a change of the tracker; return the change."""
        columns = self.tracker.columns
        self.index.touch(columns.changed_embedding | columns.freed)
        return change

    def _stay_in_budget(self) -> None:
        if self.bytes_used() > self.config.budget_mb * _MB:
            self.thin()

    def thin(self) -> int:
        """Thin the history to nine tenths of the budget; return how many facts went.

        When even that is not enough, the objects that have been gone for longest leave the graph with the next frame;
        what is left of their past stays in the history.
        """
        tracker, budget = self.tracker, self.config.budget_mb * _MB
        columns, history = tracker.columns, tracker.history
        tracker.merges.shrink(int(0.1 * budget))
        tracker.coverage.shrink(int(0.1 * budget))
        room = 0.9 * budget - (self.bytes_used() - history.bytes_used())
        each = max(1.0, history.bytes_used() / max(1, len(history)))
        went = history.thin(max(0, int(room / each)))
        tracker.removed.keep(set(history.node_ids()))
        excess = self.bytes_used() - 0.95 * budget
        if excess > 0:
            absent = columns.rows("object")
            absent = absent[columns.state[absent] == ABSENT]
            oldest = absent[np.argsort(columns.last_ns[absent], kind="stable")][: math.ceil(excess / ROW_BYTES)]
            tracker.expired |= {columns.about(int(row)).id for row in oldest}
        return went

    # -- the store -----------------------------------------------------------------------------------------------

    def writes(self) -> dict[str, Rows]:
        """Return the rows of every table that changed since :meth:`committed`."""
        tracker = self.tracker
        looked = self._looked.rows(tracker.coverage.changes(), tracker.coverage.forgotten)
        for record in tracker.embodiments.records():
            self.records.put("agents", record)
        for name, (changed, removed) in (
            ("merges", tracker.merges.records()), ("conflicts", tracker.conflicts.records()),
            ("gone", tracker.removed.records()),
        ):  # fmt: skip
            for record in changed:
                self.records.put(name, record)
            for key in removed:
                self.records.remove(name, key)
        return {
            **node_rows(tracker.columns),
            **fact_rows(tracker.history),
            "looked": looked,
            **self.records.rows(),
        }

    def about(self) -> dict[str, Any]:
        """Return what is no row: counters, grips, looks into places, what its places are places of, thinning."""
        issued, grips = dict(self.tracker.scene.issued), self.tracker.grasps.as_json()
        into = dict(self.tracker.coverage.into)
        anchor, thinned_ns = asdict(self.anchor), self.tracker.history.thinned_ns
        return {"issued": issued, "grips": grips, "anchor": anchor, "into": into, "thinned_ns": thinned_ns}

    @property
    def anchor(self) -> Anchor:
        """The frame and the map that its places are in."""
        return Anchor(self.config.tracker.frame, self.config.map)

    def committed(self) -> None:
        """What :meth:`writes` returned is durable."""
        tracker = self.tracker
        self.index.touch(tracker.columns.changed_embedding | tracker.columns.freed)
        tracker.columns.forget_changes()
        tracker.history.changed.clear()
        tracker.history.changed_words.clear()
        tracker.merges.forget_changes()
        tracker.conflicts.forget_changes()
        tracker.removed.forget_changes()
        tracker.embodiments.forget_changes()
        tracker.coverage.forget_changes()
        self.records.forget_changes()
        self._looked.forget_changes()

    def _restore(self, stored: Stored) -> None:
        tracker = self.tracker
        restore_nodes(tracker.columns, stored.tables)
        tracker.scene.restore(stored.about["issued"])
        restore_history(tracker.history, stored.tables)
        tracker.history.thinned_ns = stored.about.get("thinned_ns")
        tracker.coverage.restore(self._looked.restore(stored.tables))
        tracker.coverage.into = dict(stored.about.get("into", {}))
        self.restored = self.records.restore(stored.tables)
        tracker.merges.restore(self.restored.get("merges", ()))
        tracker.conflicts.restore(self.restored.get("conflicts", ()))
        tracker.removed.restore(self.restored.get("gone", ()))
        tracker.embodiments.restore(self.restored.get("agents", ()))
        for row in tracker.columns.agents:
            tracker.columns.about(row).embodiment = tracker.embodiments.at(tracker.columns.about(row).id)
        tracker.grasps.restore(stored.about.get("grips", {}))
        tracker.sequence, tracker.stamp_ns = stored.sequence, stored.stamp_ns
        self._begin_history()

    def _begin_history(self) -> None:
        """Objects without a fact (a store of an earlier version): what they are is their first."""
        tracker = self.tracker
        columns, history = tracker.columns, tracker.history
        tracker.removed.begin(set(history.node_ids()) - set(columns.row_of))
        rows, facts = columns.rows("object", "agent"), []
        rows = rows[columns.belief[rows] > 0]
        for row in rows.tolist():
            about = columns.about(row)
            fact = history.current(about.id)
            if fact is None:
                fact = history.state(about.id, about.label, columns.position[row], int(columns.first_ns[row]),
                                     camera=about.first_camera, sights=int(columns.sights[row]),
                                     sure=bool(columns.belief[row] >= tracker.config.sure_belief))  # fmt: skip
            facts.append(fact)
        there = history.present[facts]  # sights are written with the node alone
        of = np.array(facts, np.int64)[there]
        later = columns.last_ns[rows[there]] > history.last_sight[of]
        history.seen_later(of[later], columns.last_ns[rows[there][later]],
                           [columns.about(row).last_camera for row in rows[there][later].tolist()])  # fmt: skip
