"""Incremental relations: recomputed only around objects that moved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engram.core.types import SceneEdge
from engram.memory.graph.grasp import Grasps
from engram.memory.graph.relations import Boxes, RelationConfig, relations
from engram.memory.graph.scene_graph import SceneGraph
from engram.memory.storage.columns import ABSENT


class RelationUpdates:
    """Keeps the edges of ``scene`` up to date, with those of held objects from ``grasps``."""

    def __init__(self, config: RelationConfig, scene: SceneGraph, grasps: Grasps) -> None:
        self.config, self.scene, self.columns, self.grasps = config, scene, scene.columns, grasps
        self._placed = np.full((0, 7), np.nan)  # by row: box that its relations were computed for, and its kind

    def displaced(self, rows: list[int]) -> set[int]:
        """Return those of ``rows`` that left the box that their relations were computed for, by more than noise."""
        if not rows:
            return set()
        index, top = np.array(rows, np.int64), len(self.columns.text)
        if len(self._placed) < top:
            grown = np.full((2 * top, 7), np.nan)
            grown[: len(self._placed)] = self._placed
            self._placed = grown
        here = self._boxes(index)
        away = ~(np.abs(here - self._placed[index]) <= self.config.resting_m).all(axis=1)  # NaN is away
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
        self.relate(set(rows.tolist()), ())

    def relate(self, touched: set[int], gone: Sequence[str]) -> tuple[tuple[SceneEdge, ...], tuple[SceneEdge, ...]]:
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
            wanted = relations(among, self.config, ids)
        for holder, held in self.grasps.pairs():
            agent_id = columns.agent_id(holder)
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
            margin = columns.half[row] + self.config.near_m + 0.5  # the longest half of a small box
            around |= columns.grid.within(columns.position[row] - margin, columns.position[row] + margin)
        return around

    def _wide(self, touched: set[int]) -> set[int]:
        """Return the large boxes that ``touched`` rows may lie in or on."""
        columns = self.columns
        if not touched:
            return set()
        wide, rows = np.fromiter(columns.large, np.int64), np.fromiter(touched, np.int64)
        margin = columns.half[rows] + self.config.near_m
        low, high = (columns.position[rows] - margin).min(axis=0), (columns.position[rows] + margin).max(axis=0)
        apart = np.maximum(low - columns.position[wide], columns.position[wide] - high)
        return set(wide[(apart <= columns.half[wide]).all(axis=1)].tolist())

    def forget(self, row: int) -> None:
        """Forget the box of ``row``, which may be used for another node."""
        self._placed[row] = np.nan
