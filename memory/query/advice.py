"""Whether and where to look: the value of information of a search.

Answering now is right with the chance that the object is still where it was last seen. A search that looks at places
1 .. k in turn, until it finds, is right when it was still there or was moved to one of them, or else by the best guess
among the others: the difference, times what a right answer is worth in metres, less the way that is driven on average,
is the value of that search (Howard, *Information Value Theory*, 1966). That something is usually on the shelf is where
to look, but no answer. Places are taken in the order of probability a metre, the rule that is best for boxes at a cost
of their own, and then in a better one where ways between places make one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.spatial import cKDTree

from engram.core.types import Advice


@dataclass(frozen=True)
class AdviceConfig:
    """What an answer is worth."""

    worth_m: float = 20.0
    """Way that a right answer in place of a wrong one is worth [m]."""
    sure: float = 0.9
    """A guess at least this sure needs no look."""
    look_m: float = 2.0
    """Way that one look takes as long as [m]: keeps a search from trying every near place first."""
    hint_m: float = 0.5
    """Places nearer to each other than this are one look."""


@dataclass(frozen=True)
class Option:
    """A place where the object may be."""

    place: np.ndarray  # (3,) m
    label: str
    seen: float  # 0..1, that the one seen here is still where it was; several objects of a name are independent
    moved: float = 0.0  # 0..1, that none is where it was seen, and that a look here finds one all the same

    @property
    def probability(self) -> float:
        """Chance that a look here finds it."""
        return min(1.0, self.seen + self.moved)


def advise(options: Sequence[Option], robot_place: np.ndarray | None, config: AdviceConfig | None = None) -> Advice:
    """Return where a look is worth most, or that none is; without ``robot_place`` ways cost nothing.

    The route takes ``options`` for alternatives: chances that add up to more than 1 are scaled down to 1.
    """
    config = config or AdviceConfig()
    known = max(options, key=lambda option: option.seen, default=None)
    options = _gathered([option for option in options if option.probability > 0], config.hint_m)
    if not options:
        return Advice(False, "I know of no place where a look could help.")
    p = np.array([option.probability for option in options])
    p = p / max(1.0, float(p.sum()))
    places = np.array([option.place for option in options])
    ways = np.zeros((len(p) + 1, len(p)))
    if robot_place is not None:
        ways = np.linalg.norm(np.vstack([robot_place, places])[:, None] - places[None], axis=2)
    order = search_order(p, ways, config.look_m) if robot_place is not None else np.argsort(-p, kind="stable").tolist()
    route, chances = tuple(places[j] for j in order), tuple(float(p[j]) for j in order)
    labels = tuple(options[j].label for j in order)
    if known is not None and known.seen >= config.sure:
        text = f"No look is needed: it is at {known.label}."
        return Advice(False, text, route=route, chances=chances, labels=labels)
    value = _worth([options[j] for j in order], ways, order, config.worth_m)
    away = "" if robot_place is None else f", {float(ways[0, order[0]]):.1f} m away"
    option = options[order[0]]
    where, finds = f"{option.label}{away}", f"a look there finds it with a chance of {100 * chances[0]:.0f} %"
    if value <= 0:
        lost = f"takes {-value:.1f} m of way more than it is worth" if value < 0 else "would add nothing"
        text = f"Looking is not worth it: the best place is {where}; {finds}; the search {lost}."
        return Advice(False, text, None, route, chances, labels)
    gain = f"the search is worth {value:.1f} m of way more than it takes"
    text = f"Look at {where}: {finds}; {gain}."
    return Advice(True, text, option.place, route, chances, labels)


def itinerary(
    labels: Sequence[str], route: Sequence[Sequence[float] | np.ndarray], chances: Sequence[float], most: int
) -> str:
    """Return the first ``most`` stops of a search in words; empty where there is no second one to go to.

    >>> itinerary(["the hall", "the shelf", "the sink"], [(0, 8, 0), (3, 0, 1), (4, 0, 1)], [0.5, 0.2, 0.1], 2)
    'In this order: the hall (0.00, 8.00, 0.00) 50 %, the shelf (3.00, 0.00, 1.00) 20 %, and 1 more.'
    """
    if len(route) < 2:
        return ""
    stops = [
        f"{label} ({x:.2f}, {y:.2f}, {z:.2f}) {100 * chance:.0f} %"
        for label, (x, y, z), chance in zip(labels[:most], route[:most], chances[:most], strict=True)
    ]
    more = len(route) - len(stops)
    return f"In this order: {', '.join(stops)}{f', and {more} more' if more else ''}."


def search_order(p: np.ndarray, ways: np.ndarray, look_m: float) -> list[int]:
    """Return the order of a search that finds after the shortest way on average, as far as swaps can tell.

    It begins with the order of probability a metre and then moves single places and turns parts round while that
    shortens the expected way (2-opt and or-opt, over the first 24 places).

    Args:
        p: (n,) the chance that the object is at each place; together 1 at most.
        ways: (n + 1, n) m, from the robot (row 0) and from each place (row 1 + i) to each place.
        look_m: way that one look takes as long as [m].
    """
    left, at, order = list(range(len(p))), 0, []
    while left:
        order.append(left.pop(int(np.argmax(p[left] / (ways[at, left] + look_m)))))
        at = order[-1] + 1
    head = np.array(order[:_IMPROVED])
    changes, cost = _changes(len(head)), np.inf
    while len(head) > 1:
        costs = _expected_way(p, ways, head[changes], look_m)
        best = int(np.argmin(costs))
        if costs[best] > cost - 1e-9:
            break
        cost, head = float(costs[best]), head[changes[best]]
    return [*head.tolist(), *order[_IMPROVED:]]


_IMPROVED = 24
"""The order of so many first places is improved."""


@lru_cache(maxsize=_IMPROVED)
def _changes(n: int) -> np.ndarray:
    """Return index arrays (m, n): as it is, with one place moved, with one part turned round."""
    rows = [list(range(n))]
    for i in range(n):
        rest = [k for k in range(n) if k != i]
        rows += [[*rest[:j], i, *rest[j:]] for j in range(n) if j != i]
        rows += [[*range(i), *range(j, i - 1, -1), *range(j + 1, n)] for j in range(i + 2, n)]
    return np.array(rows)


def _expected_way(p: np.ndarray, ways: np.ndarray, orders: np.ndarray, look_m: float) -> np.ndarray:
    """Return the way (m,) that searches in ``orders`` (m, n) take until they find, looks counted as way."""
    legs = np.hstack([ways[0, orders[:, :1]], ways[orders[:, :-1] + 1, orders[:, 1:]]]) + look_m
    chance = p[orders]
    return ((1.0 - (np.cumsum(chance, axis=1) - chance)) * legs).sum(axis=1)


def _worth(options: Sequence[Option], ways: np.ndarray, order: Sequence[int], worth_m: float) -> float:
    """Return the value [m] of the best beginning of a search of ``options``, which are in ``order``."""
    seen, moved = np.array([(one.seen, one.moved) for one in options]).T
    gone = np.cumprod(1.0 - seen)  # none of those seen at the places up to here is there any more
    found = np.minimum(1.0, 1.0 - gone + np.cumsum(moved))
    legs = ways[np.concatenate(([0], np.array(order[:-1], np.int64) + 1)), order]
    way = np.cumsum(np.concatenate(([1.0], 1.0 - found[:-1])) * legs)
    guess = np.append(np.maximum.accumulate(seen[::-1])[::-1][1:], 0.0)  # the best place not yet looked at
    # of a single place no guess to act on is as good as none: seeing it there makes it one
    best = float(seen.max()) if len(seen) > 1 else 0.0
    return float(((np.minimum(1.0, found + gone * guess) - best) * worth_m - way).max())


def _gathered(options: Sequence[Option], apart_m: float) -> list[Option]:
    """Return options with those of one place joined: the likelier one's place and label, the chances of both."""
    if len(options) < 2 or not cKDTree([one.place for one in options]).query_pairs(apart_m):
        return sorted(options, key=lambda one: -one.probability)
    joined: list[Option] = []
    places = np.empty((len(options), 3))
    for option in sorted(options, key=lambda one: -one.probability):
        away = places[: len(joined)] - option.place
        near = np.flatnonzero(np.einsum("ni,ni->n", away, away) < apart_m**2)
        if len(near):
            one = joined[near[0]]
            seen = 1.0 - (1.0 - one.seen) * (1.0 - option.seen)
            joined[near[0]] = Option(one.place, one.label, seen, one.moved + option.moved)
        else:
            places[len(joined)] = option.place
            joined.append(option)
    return joined
