"""Writes what a frame changed as bitemporal facts and events."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engram.core.types import GraphEvent, SceneEdge
from engram.memory.graph.frame_step import Step
from engram.memory.graph.scene_graph import SUPPORTS, SceneGraph
from engram.memory.graph.tracker_config import TrackerConfig
from engram.memory.storage.columns import ABSENT, AGENT
from engram.memory.storage.fact_columns import FOREVER
from engram.memory.storage.history import History

_SUPPORTS = ("held_by", *SUPPORTS)
"""What a fact says of where an object is."""


class FactWriter:
    """Opens and ends the facts of ``history`` as the nodes of ``scene`` change."""

    def __init__(self, config: TrackerConfig, scene: SceneGraph, history: History) -> None:
        self.config, self.scene, self.columns, self.history = config, scene, scene.columns, history

    def follow(self, step: Step, added: Sequence[SceneEdge], removed: Sequence[SceneEdge]) -> None:
        """Write the facts of all objects that this frame changed."""
        columns, history = self.columns, self.history
        resupported = {e.source for e in (*added, *removed) if e.relation in _SUPPORTS}
        check = {row for row in step.changed if columns.about(row).layer == "object"}
        check |= {columns.row_of[node_id] for node_id in resupported if node_id in columns}
        check |= {row for e in removed if e.relation == "held_by" for row in self._contents(e.source)}
        rows = np.array(sorted(check), np.int64)
        facts = np.array([self.current(row) for row in rows.tolist()], np.int64)
        has = facts >= 0
        apart = np.full(len(rows), np.inf)
        apart[has] = np.linalg.norm(columns.position[rows[has]] - history.place[facts[has]], axis=1)
        seen = set(step.sighted)
        for row, fact, distance in zip(rows.tolist(), facts.tolist(), apart.tolist(), strict=True):
            self._fact(row, fact, distance, row in seen, step)
        for row in [row for row in step.changed if columns.layer[row] == AGENT]:
            self._whereabouts(row, step)

    def _fact(self, row: int, fact: int, distance: float, seen: bool, step: Step) -> None:
        """Go on with the open ``fact`` of ``row`` (-1 = none), or end it and state another."""
        columns, history = self.columns, self.history
        about, absent = columns.about(row), columns.state[row] == ABSENT
        if fact < 0:
            if not absent:
                self.open(row, step)
            return
        sure = bool(columns.belief[row] >= self.config.sure_belief)
        if absent:
            if history.present[fact]:
                self._state(row, step, present=False)
            return
        relation, target = self.support(about.id)
        was = history.words[history.relation[fact]], history.words[history.target[fact]]
        carried = relation == was[0] == "held_by" or ((relation, target) == was and self._in_hand(target))
        put_elsewhere = target != "" and (relation, target) != was
        let_go = was[0] == "held_by" and relation != "held_by"
        back = not history.present[fact]
        if back and not seen:
            return
        renamed = history.words[history.label[fact]] != about.label
        again = sure and history.sure_to[fact] != FOREVER
        if back or renamed or let_go or put_elsewhere or again or (distance > self.config.fact_m and not carried):
            before = history.place[fact].astype(np.float64)
            self._state(row, step)
            if back:
                self.event("returned", row, step, before=before)
            elif distance > self.config.fact_m and row not in step.taken:
                self.event("moved", row, step, before=before)
            return
        history.believe(fact, sure, step.stamp_ns)
        if seen:
            history.sighted(about.id, step.stamp_ns, step.camera)

    def _whereabouts(self, row: int, step: Step) -> None:
        """Write the path of an agent, in steps of ``way_m``; driving is not an event."""
        if self.columns.belief[row] == 0:
            return
        fact = self.current(row)
        gone = np.inf if fact < 0 else np.linalg.norm(self.columns.position[row] - self.history.place[fact])
        if gone > self.config.way_m:
            self._state(row, step)
        elif step.camera:
            self.history.sighted(self.columns.about(row).id, step.stamp_ns, step.camera)

    def open(self, row: int, step: Step) -> None:
        """Write the first fact of a new object and its event."""
        if self.current(row) < 0 and self.columns.about(row).layer == "object":
            self._state(row, step)
            self.event("new", row, step)

    def _state(self, row: int, step: Step, present: bool = True) -> None:
        columns, about = self.columns, self.columns.about(row)
        relation, target = self.support(about.id) if present else ("", "")
        self.history.state(
            about.id, about.label, columns.position[row], step.stamp_ns, present=present, relation=relation,
            target=target, camera=step.camera, sure=bool(columns.belief[row] >= self.config.sure_belief),
        )  # fmt: skip

    def support(self, node_id: str) -> tuple[str, str]:
        """Return the relation and the node by which ``node_id`` is where it is: a hand, else the smallest box."""
        columns = self.columns
        found = [(relation != "held_by", float(np.prod(columns.half[columns.row_of[target]])), relation, target)
                 for target, relation in self.scene.related(node_id).items() if relation in _SUPPORTS]  # fmt: skip
        return min(found)[2:] if found else ("", "")

    def _in_hand(self, node_id: str) -> bool:
        """Whether a hand holds ``node_id``, or what it lies in or on."""
        passed: set[str] = set()
        while node_id and node_id not in passed:
            passed.add(node_id)
            relation, node_id = self.support(node_id)
            if relation == "held_by":
                return True
        return False

    def _contents(self, node_id: str) -> set[int]:
        """Return the rows of the objects that lie in or on ``node_id``, directly or in turn."""
        found: set[str] = set()
        waiting = [node_id] if node_id in self.columns else []
        while waiting:
            inner = [one for one in self.scene.contents(waiting.pop()) if one not in found]
            found.update(inner)
            waiting += inner
        return {self.columns.row_of[one] for one in found}

    def current(self, row: int) -> int:
        """Return the open fact of ``row``; -1 = none."""
        found = self.history.current(self.columns.about(row).id)
        return -1 if found is None else found

    def believed_there(self, row: int) -> bool:
        """Whether the open fact of ``row`` says that it is at its place."""
        fact = self.current(row)
        return fact >= 0 and bool(self.history.present[fact])

    def event(self, kind: str, row: int, step: Step, before: np.ndarray | None = None, other: str = "") -> None:
        """Add an event of ``row`` to this frame; ``before`` (3,) m is where it was."""
        about = self.columns.about(row)
        place = self.columns.position[row].copy()
        step.events.append(GraphEvent(kind, about.id, about.label, step.stamp_ns, place, before, other, step.evidence))
