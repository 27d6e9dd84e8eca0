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
        self._start, self._levers = separation.place(start), separation.levers[chosen]
        self._reach = np.full(len(chosen), -np.inf)
        self._at_start = Distances(self._reach, np.zeros(0), np.zeros(0, bool))
        self.worst = 0
        """The pair that failed last."""

    @property
    def start(self) -> np.ndarray:
        """Where the ways begin, (n,)."""
        return self._start.positions

    def holds(self, way: Sequence[np.ndarray]) -> bool:
        """Tell whether the steps to each position of ``way`` (n,) keep every margin, or what there is of it now."""
        near, span = self._near(way)
        if not near.any():
            return True
        pairs, least = self._chosen[near], np.minimum(self._margins, self._at_start.value)[near] - EQUAL_M
        first = self._start, self._at_start.part(near)
        last = self._measure(way[-1], pairs, self._margins[near] + span[near])
        if not self._enough(pairs, last[1].value, least):
            return False
        low = (first[1].value + last[1].value - span[near]) / 2.0 < least
        pairs, least = pairs[low], least[low]
        here, last = (first[0], first[1].part(low)), (last[0], last[1].part(low))
        for positions in way if len(pairs) else ():
            step = self._separation.levers[pairs] @ np.abs(positions - here[0].positions)
            there = last if positions is way[-1] else self._measure(positions, pairs, least + step)
            if not self._enough(pairs, there[1].value, least) or not self._clear(here, there, pairs, least - SAG_M):
                return False
            here = there
        return True

    def constraints(
        self, asked: np.ndarray, way: Sequence[np.ndarray], *, from_start: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what keeps the margins to first order: ``rows @ positions >= least``, (k, n) and (k,).

        The joints answered ``asked`` (n,) with ``way``. The distances are those at its end, and hold for positions
        near ``asked``. Where the end is deep in something, that shows a wrong way out: ``from_start`` takes the
        distances at the start.
        """
        near, _ = self._near(way)
        start, at_start, pairs = self._start.positions, self._at_start.value[near], self._chosen[near]
        stretch = np.linalg.norm(way[-1] - start) / max(float(np.linalg.norm(asked - start)), 1e-9)
        if from_start:
            about, at, found = start, self._start, self._at_start.part(near)
        else:
            about, at = asked, self._separation.place(way[-1])
            found = self._separation.distances(at, pairs, self._margins[near] + np.abs(at_start))
        rows = np.clip(stretch, *STRETCH) * self._separation.slopes(at, pairs, found)
        least = np.minimum(self._margins[near], at_start)
        spare = np.minimum(BUFFER_M, at_start - least)
        return rows, least + spare - found.value + rows @ about

    def _near(self, way: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return which pairs (k,) could fall short of their margin on ``way``, and how much nearer they can get [m]."""
        stops = np.array((self._start.positions, *way))
        span = self._levers @ np.abs(stops[1:] - stops[:-1]).sum(axis=0)
        reach = self._margins + span
        if (reach > self._reach).any():
            self._reach = np.maximum(reach, self._reach)
            self._at_start = self._separation.distances(self._start, self._chosen, self._reach)
        return self._at_start.value <= reach, span

    def _measure(self, positions: np.ndarray, pairs: np.ndarray, reach: np.ndarray) -> Known:
        placed = self._separation.place(positions)
        return placed, self._separation.distances(placed, pairs, reach)

    def _enough(self, pairs: np.ndarray, distances: np.ndarray, least: np.ndarray) -> bool:
        spare = distances - least
        if spare.min() >= 0.0:
            return True
        self.worst = int(pairs[spare.argmin()])
        return False

    def _clear(self, here: Known, there: Known, pairs: np.ndarray, least: np.ndarray, halvings: int = HALVINGS) -> bool:
        """Tell whether no distance of ``pairs`` (k,) gets below ``least`` (k,) m between two placements."""
        (at_here, from_here), (at_there, from_there) = here, there
        step = np.abs(at_there.positions - at_here.positions)
        span, turn = self._separation.levers[pairs] @ step, float(self._separation.turns @ step)
        low = (from_here.value + from_there.value - span) / 2.0 < least
        if low.any():
            low[low] = self._along_normals(here, there, pairs, least + span * turn / 8.0, low)
        if not low.any():
            return True
        if halvings == 0:
            self.worst = int(pairs[low][0])
            return False
        pairs, least = pairs[low], least[low]
        between = self._measure((at_here.positions + at_there.positions) / 2.0, pairs, least + span[low])
        if not self._enough(pairs, between[1].value, least):
            return False
        first, last = (at_here, from_here.part(low)), (at_there, from_there.part(low))
        halves = (first, between), (between, last)
        return all(self._clear(one, other, pairs, least, halvings - 1) for one, other in halves)

    def _along_normals(
        self, here: Known, there: Known, pairs: np.ndarray, least: np.ndarray, chosen: np.ndarray
    ) -> np.ndarray:
        """Return which of the ``chosen`` pairs are not ``least`` (k,) m apart at both placements along one direction.

        (c,). The directions that are tried are the normals at the two. Seen from the first link, every point of the
        second moves on an arc. It deviates from the straight line by an eighth of its acceleration, so in between the
        pair is nearer by no more than that.
        """
        short = np.minimum(here[1].value, there[1].value)[chosen] < least[chosen]
        normals = [known.part(chosen).normals() for _, known in (here, there)]
        for i in np.flatnonzero(~short & ~here[1].plane[chosen]).tolist():
            pair, wanted = int(pairs[chosen][i]), float(least[chosen][i])
            tries = (there[0], normals[0][i], here[0]), (here[0], normals[1][i], there[0])
            short[i] = not any(n.any() and self._separation.gap(at, pair, n, seen) >= wanted for at, n, seen in tries)
        return short
