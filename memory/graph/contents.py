"""What lies in or on an object moves with that object, whether or not a camera sees it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from engram.memory.graph.frame_step import Step
from engram.memory.graph.grasp import Grasps
from engram.memory.graph.scene_graph import SUPPORTS, SceneGraph
from engram.memory.graph.tracker_config import TrackerConfig
from engram.memory.storage.columns import ABSENT, OBJECT

_LEAST_M = 0.01
"""A carrier that was detected less than this far away did not move, however small its contents are [m]."""
_FILLS = 0.5
"""Largest share of its container's box that an object takes up."""


@dataclass
class Link:
    """In or on what an object lies that is out of sight, and the carrier's box when the object was placed last."""

    carrier: str  # node id
    position: np.ndarray  # (3,) m
    half: np.ndarray  # (3,) m, axis-aligned half extents as they were detected


class Contents:
    """Moves the contents of objects. They are what the relations ``in`` and ``on`` say, unless a hand holds it.

    A carrier that is slid moves a little in every frame. Therefore a link remembers where the carrier was when its
    contents were placed last: seen, or moved by this class. Links are in RAM only; after a restart they begin anew.
    """

    def __init__(self, config: TrackerConfig, scene: SceneGraph, grasps: Grasps) -> None:
        self.config, self.scene, self.columns, self.grasps = config, scene, scene.columns, grasps
        self._links: dict[str, Link] = {}  # by the content's node id
        self._half: dict[str, np.ndarray] = {}  # carrier -> its half extents (3,) m when it was detected last

    def follow(self, step: Step, before: Mapping[int, np.ndarray], seen: Mapping[int, np.ndarray]) -> set[int]:
        """Move the contents of what moved, but those seen in this frame; return their rows.

        The camera looked for them where they were before, so that this frame says nothing of them.

        Args:
            step: the frame.
            before: row -> position (3,) m before this frame, of what was held or detected.
            seen: row -> axis-aligned half extents (3,) m of the detected box.
        """
        columns, moved, placed = self.columns, set[int](), {*step.sighted, *step.taken}
        linked = self._linked(placed)
        for row, place in before.items():
            node_id = columns.about(row).id
            contents = [*linked.get(node_id, ()), *self.scene.contents(node_id)]
            if not contents:
                self._half.pop(node_id, None)
                continue
            held = self.grasps.holder(node_id) is not None
            for content in dict.fromkeys(contents):
                if columns.row_of[content] in placed or self._carrier(content) != node_id:
                    continue
                link = self._link(content, node_id, place)
                by = self._displaced(link, row, columns.row_of[content], held, seen.get(row))
                if by is not None:
                    moved |= self._shift(content, by, step, placed)
                    link.position = link.position + by
            if row in seen:
                self._half[node_id] = seen[row]
        return moved

    def taken_along(self, rows: np.ndarray, missed: set[int], reappeared: Callable[[int], bool]) -> np.ndarray:
        """Tell (n,) bool which of ``rows`` may have left their places together with what they lie in or on.

        That is so where the carrier is gone, too, and something like it, but nothing like the content, was found
        elsewhere since. Once the two are merged, the content is moved.

        Args:
            rows: rows (n,) of objects that were looked for and not seen.
            missed: rows that this frame missed.
            reappeared: tells whether something like a row was first seen elsewhere since that was last seen.
        """
        columns, along = self.columns, np.zeros(len(rows), bool)
        for i, row in enumerate(rows.tolist()):
            node_id = columns.about(row).id
            carrier = self._carrier(node_id)
            if carrier is None:
                continue
            under = columns.row_of[carrier]
            if (under in missed or columns.state[under] == ABSENT) and reappeared(under) and not reappeared(row):
                self._link(node_id, carrier, columns.position[under])
                along[i] = True
        return along

    # -- links ---------------------------------------------------------------------------------------------------

    def _linked(self, placed: Collection[int]) -> dict[str, list[str]]:
        """Return carrier -> contents of the links; those of what is gone, or was seen or merged just now, end."""
        columns, found = self.columns, dict[str, list[str]]()
        for content, link in list(self._links.items()):
            row = columns.row_of.get(content, -1)
            if row < 0 or link.carrier not in columns or row in placed or columns.state[row] == ABSENT:
                del self._links[content]
            else:
                found.setdefault(link.carrier, []).append(content)
        self._half = {node_id: half for node_id, half in self._half.items() if node_id in columns}
        return found

    def _link(self, content: str, carrier: str, place: np.ndarray) -> Link:
        """Return the link of ``content`` to ``carrier``; a new one begins with the carrier at ``place`` (3,) m."""
        link = self._links.get(content)
        if link is None or link.carrier != carrier:
            half = self._half.get(carrier, self.columns.half[self.columns.row_of[carrier]])
            link = self._links[content] = Link(carrier, place.copy(), half.copy())
        return link

    def _carrier(self, content: str) -> str | None:
        """Return the object that ``content`` lies in, else on; of several the smallest. Both are known well.

        A relation that a displaced carrier lost for a while still counts, unless another object took its place.
        """
        row, link = self.columns.row_of[content], self._links.get(content)
        if not self._known(row) or self.columns.belief[row] < self.config.sure_belief or self.grasps.holder(content):
            return None
        found = []
        for target, relation in self.scene.related(content).items():
            under = self.columns.row_of[target]
            if relation in SUPPORTS and self._known(under) and (relation == "on" or self._has_room(under, row)):
                if link is not None and link.carrier == target:
                    return target
                found.append((relation != "in", float(np.prod(self.columns.half[under])), target))
        if found:
            return min(found)[2]
        return link.carrier if link is not None and link.carrier in self.columns else None

    def _known(self, row: int) -> bool:
        """Whether ``row`` is an object that was seen often enough to be no false detection."""
        columns = self.columns
        return bool(columns.layer[row] == OBJECT and columns.sights[row] >= self.config.confirmed_after)

    def _has_room(self, outer: int, inner: int) -> bool:
        """Whether one can be in the other; two boxes of about one size that overlap were measured badly."""
        return bool(np.prod(self.columns.size[inner]) <= _FILLS * np.prod(self.columns.size[outer]))

    # -- motion --------------------------------------------------------------------------------------------------

    def _displaced(self, link: Link, row: int, content: int, held: bool, half: np.ndarray | None) -> np.ndarray | None:
        """Return by how much (3,) m the carrier in ``row`` moved since its content was placed last; None = it rests.

        A detected carrier moved as far as both sides of its box did: of a box that is cut off, one side stays. That has
        to be more than noise. Content that lies inside a carrier is still inside it, as far as the memory knows, until
        the carrier moved by half of the content's own width.
        """
        by, config = self.columns.position[row] - link.position, self.config
        if held:
            return by if np.abs(by).max() > config.relations.resting_m else None
        if half is None:
            return None
        reach = np.clip(self.columns.half[content, :2].min(), _LEAST_M, config.fact_m)
        by = np.sign(by) * np.maximum(np.abs(by) - np.abs(half - link.half), 0.0)
        return by if np.linalg.norm(by) > reach else None

    def _shift(self, content: str, by: np.ndarray, step: Step, placed: Collection[int]) -> set[int]:
        """Move ``content`` by (3,) m, with what lies in or on it in turn but the ``placed`` rows; return the rows.

        Nothing is moved down beyond the bottom of its carrier: a cover that is lowered pushes nothing into the table.
        """
        columns, shifted, waiting = self.columns, set[int](), [(content, by)]
        while waiting:
            node_id, by = waiting.pop()
            row = columns.row_of[node_id]
            if row in shifted:
                continue
            shifted.add(row)
            carrier, before = columns.row_of[self._links[node_id].carrier], columns.position[row].copy()
            bottom = columns.position[carrier, 2] - columns.half[carrier, 2]
            columns.position[row] = before + by
            columns.position[row, 2] = max(before[2] + by[2], min(before[2], bottom + columns.half[row, 2]))
            self._spread(row, carrier)
            columns.moved([row])
            step.change([row])
            for other in self.scene.contents(node_id):
                if columns.row_of[other] not in placed and self._carrier(other) == node_id:
                    link, own = self._link(other, node_id, before), columns.position[row] - before
                    link.position = link.position + own
                    waiting.append((other, own))
        return shifted

    def _spread(self, row: int, carrier: int) -> None:
        """Let the position of ``row`` be at least as uncertain as its carrier's and half of its play in there."""
        columns = self.columns
        play = np.maximum(columns.half[carrier] - columns.half[row], 0.0) / 2
        least, own = np.diag(columns.covariance[carrier]) + play**2, np.diag(columns.covariance[row])
        columns.covariance[row] += np.diag(np.maximum(least - own, 0.0))
