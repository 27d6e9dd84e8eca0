"""Whether looking is worth its way: value of information before a search.

Acting on the best guess now succeeds with probability max p. After a look at place i it is p_i (found there) plus
(1 - p_i) max_j p_j / (1 - p_i) = p_i + max_{j != i} p_j. The difference, times what a success is worth in metres,
less the way there, is the value of that look (Howard, *Information Value Theory*, 1966; one step ahead).
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
    hint_m: float = 2.0
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
    best = float(p.max())
    others = np.array([max([q for j, q in enumerate(p) if j != i], default=0.0) for i in range(len(p))])
    gain = p + others - best
    if len(p) == 1:
        gain = p  # no guess to act on is as good as none: seeing it there makes it one
    places = np.array([option.place for option in options])
    cost = np.zeros(len(p)) if robot_place is None else np.linalg.norm(places - robot_place, axis=1)
    value = gain * config.worth_m - cost
    i = int(np.argmax(value))
    option = options[i]
    chance = f"{100 * p[i]:.0f} % that it is there, {cost[i]:.1f} m away"
    if value[i] <= 0:
        text = f"Looking is not worth it: the best place, {option.label}, has {chance}."
        return Advice(False, text, None, option.label, float(p[i]), float(cost[i]), float(value[i]))
    text = f"Look at {option.label}: {chance}."
    return Advice(True, text, option.place, option.label, float(p[i]), float(cost[i]), float(value[i]))


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
