"""The proof that joints touch nothing on a way of several steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engram.sim.robots.separation import Distances, Placement, Separation

BUFFER_M = 5e-4
"""How much more than the margin the linear constraints ask for, as they know distances to first order alone [m]."""
SAG_M = 0.004
"""By how much a distance may be smaller between two commands than at both of them [m]."""
HALVINGS = 8
"""How often a step is halved at most before it counts as not proven."""
EQUAL_M = 1e-6
"""Distances that differ by less count as equal [m]."""
STRETCH = (0.3, 3.0)
"""How far the joints' rest is believed to shift, at least and at most, when the asked positions shift by 1."""

Known = tuple[Placement, Distances]


class Certificate:
    """Judges ways from one start.

    Distances are measured at the end of each step. Between two measurements, bounds on how the joints move the links
    tell that no distance gets too small. Where they do not tell, the step is halved.
    """

    def __init__(self, separation: Separation, margins: np.ndarray, chosen: np.ndarray, start: np.ndarray) -> None:
        """Judge the ``chosen`` pairs, indices into ``margins`` (p,) m, for ways from ``start`` (n,)."""
        self._separation, self._chosen, self._margins = separation, chosen, margins[chosen]
        self._start = separation.place(start)
        self._reach = np.full(len(chosen), -np.inf)
        self._at_start = Distances(self._reach, np.zeros(0), np.zeros(0, bool))
        self.worst = 0
        """The pair that failed last."""

    def holds(self, way: Sequence[np.ndarray]) -> bool:
        """Tell whether the steps to each position of ``way`` (n,) keep every margin, or what there is of it now."""
        near, levers = self._near(way)
        if not near.any():
            return True
        pairs, margins = self._chosen[near], self._margins[near]
        here = self._start, self._at_start.part(near)
        least = np.minimum(margins, here[1].value) - EQUAL_M
        for positions in way:
            span = levers[near] @ np.abs(positions - here[0].positions)
            stop = self._separation.place(positions)
            there = stop, self._separation.distances(stop, pairs, margins + span)
            if not self._enough(pairs, there[1].value, least):
                return False
            if not self._clear(here, there, pairs, least - SAG_M, levers[near], HALVINGS):
                return False
            here = there
        return True

    def constraints(self, asked: np.ndarray, way: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return what keeps the margins to first order: ``rows @ positions >= least``, (k, n) and (k,).

        They hold for positions near ``asked`` (n,), to which the joints answered with ``way``.
        """
        near, _ = self._near(way)
        start, at_start, pairs = self._start.positions, self._at_start.value[near], self._chosen[near]
        end = self._separation.place(way[-1])
        found = self._separation.distances(end, pairs, self._margins[near] + np.abs(at_start))
        stretch = np.linalg.norm(end.positions - start) / max(float(np.linalg.norm(asked - start)), 1e-9)
        rows = np.clip(stretch, *STRETCH) * self._separation.slopes(end, pairs, found)
        least = np.minimum(self._margins[near], at_start)
        spare = np.minimum(BUFFER_M, at_start - least)
        return rows, least + spare - found.value + rows @ asked

    def _near(self, way: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return which pairs (k,) could fall short of their margin on ``way``, and levers (k, n) m for it."""
        stops = np.array((self._start.positions, *way))
        moved = np.abs(stops[1:] - stops[:-1]).sum(axis=0)
        levers = self._separation.levers(self._start, moved)[self._chosen]
        reach = self._margins + levers @ moved
        if (reach > self._reach).any():
            self._reach = np.maximum(reach, self._reach)
            self._at_start = self._separation.distances(self._start, self._chosen, self._reach)
        return self._at_start.value <= reach, levers

    def _enough(self, pairs: np.ndarray, distances: np.ndarray, least: np.ndarray) -> bool:
        spare = distances - least
        if spare.min() >= 0.0:
            return True
        self.worst = int(pairs[spare.argmin()])
        return False

    def _clear(
        self, here: Known, there: Known, pairs: np.ndarray, least: np.ndarray, levers: np.ndarray, halvings: int
    ) -> bool:
        """Tell whether no distance of ``pairs`` (k,) gets below ``least`` (k,) m between two placements."""
        (at_here, from_here), (at_there, from_there) = here, there
        step = np.abs(at_there.positions - at_here.positions)
        span, turn = levers @ step, float(self._separation.turns @ step)
        low = (from_here.value + from_there.value - span) / 2.0 < least
        if low.any():
            least_along = least + span * turn / 8.0
            low[low] = self._along_normals(here, there, pairs, low) < least_along[low]
        if not low.any():
            return True
        if halvings == 0:
            self.worst = int(pairs[low][0])
            return False
        pairs, least, levers = pairs[low], least[low], levers[low]
        middle = self._separation.place((at_here.positions + at_there.positions) / 2.0)
        between = middle, self._separation.distances(middle, pairs, least + span[low])
        if not self._enough(pairs, between[1].value, least):
            return False
        first, last = (at_here, from_here.part(low)), (at_there, from_there.part(low))
        halves = (first, between), (between, last)
        return all(self._clear(one, other, pairs, least, levers, halvings - 1) for one, other in halves)

    def _along_normals(self, here: Known, there: Known, pairs: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Return how far apart the ``chosen`` pairs are at both placements along one direction, (c,) m.

        It is the better of the normals at the two. Seen from the first link, every point of the second moves on an arc.
        It deviates from the straight line by an eighth of its acceleration, so in between the pair is at most so much
        nearer.
        """
        best = np.full(int(chosen.sum()), -np.inf)
        for (at, known), (other, _) in ((here, there), (there, here)):
            those = known.part(chosen)
            for i, normal in enumerate(those.normals()):
                if normal.any():
                    gap = self._separation.gap(other, int(pairs[chosen][i]), normal, at)
                    best[i] = max(best[i], min(float(those.value[i]), gap))
        return best
