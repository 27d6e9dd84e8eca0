"""Whether looking is worth its way: value of information before a search.

Acting on the best guess now succeeds with probability max p. A search that looks at places 1 .. k in turn, until it
finds, succeeds with p_1 + .. + p_k, or by the best guess among the others: the difference, times what a success is
worth in metres, less the way that is driven on average, is the value of that search (Howard, *Information Value
Theory*, 1966). Places are taken in the order of probability a metre, the rule that is best for independent boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
    probability: float  # 0..1


def advise(options: Sequence[Option], robot_place: np.ndarray | None, config: AdviceConfig | None = None) -> Advice:
    """Return where a look is worth most, or that none is; without ``robot_place`` ways cost nothing.

    ``options`` are alternatives: probabilities that add up to more than 1 are scaled down to 1.
    """
    config = config or AdviceConfig()
    known = max(options, key=lambda option: option.probability, default=None)
    if known is not None and known.probability >= config.sure:
        return Advice(False, f"No look is needed: it is at {known.label}.")
    options = _gathered([option for option in options if option.probability > 0], config.hint_m)
    if not options:
        return Advice(False, "I know of no place where a look could help.")
    p = np.array([option.probability for option in options])
    p = p / max(1.0, float(p.sum()))
    places = np.array([option.place for option in options])
    order, cost, value = _best_search(p, places, robot_place, config)
    i, route = order[0], tuple(places[j] for j in order)
    option = options[i]
    chance = f"{100 * p[i]:.0f} % that it is there, {cost:.1f} m away"
    if value <= 0:
        text = f"Looking is not worth it: the best place, {option.label}, has {chance}."
        return Advice(False, text, None, option.label, float(p[i]), cost, value, route)
    text = f"Look at {option.label}: {chance}."
    return Advice(True, text, option.place, option.label, float(p[i]), cost, value, route)


def _best_search(
    p: np.ndarray, places: np.ndarray, robot_place: np.ndarray | None, config: AdviceConfig
) -> tuple[list[int], float, float]:
    """Return the order of a search, the way [m] to its first place, and the value [m] of its best beginning."""
    best, left, here = float(p.max()), list(range(len(p))), robot_place
    order: list[int] = []
    found = way = first_cost = 0.0
    value = -np.inf
    while left:
        far = np.zeros(len(left)) if here is None else np.linalg.norm(places[left] - here, axis=1)
        k = int(np.argmax(p[left] / (far + config.look_m)))
        first_cost = float(far[k]) if not order else first_cost
        way += (1 - found) * float(far[k])
        order.append(left.pop(k))
        found += float(p[order[-1]])
        guess = float(p[left].max()) if left else 0.0
        value = max(value, (found + guess - best) * config.worth_m - way)
        here = places[order[-1]] if robot_place is not None else None
    if len(p) == 1:  # no guess to act on is as good as none: seeing it there makes it one
        value = found * config.worth_m - way
    return order, first_cost, value


def _gathered(options: Sequence[Option], apart_m: float) -> list[Option]:
    """Return options with those of one place joined: the likelier one's place and label, both probabilities."""
    joined: list[Option] = []
    for option in sorted(options, key=lambda one: -one.probability):
        near = [i for i, one in enumerate(joined) if np.linalg.norm(one.place - option.place) < apart_m]
        if near:
            one = joined[near[0]]
            joined[near[0]] = Option(one.place, one.label, min(1.0, one.probability + option.probability))
        else:
            joined.append(option)
    return joined
