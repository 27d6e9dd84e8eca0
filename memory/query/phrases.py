"""Parts of sentences: ages, times, where something is and what carries it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import numpy as np

from engram.core.types import SceneNode
from engram.memory.graph.tracker import Tracker
from engram.memory.query.locations import location
from engram.memory.storage.fact_columns import Fact

_YEAR_NS = 365 * 86_400 * 10**9
_DAY_S = 86_400
_AGES = (
    (1.0, "second", 120.0), (60.0, "minute", 7200.0), (3600.0, "hour", 2.0 * _DAY_S), (_DAY_S, "day", 14.0 * _DAY_S),
    (7.0 * _DAY_S, "week", 60.0 * _DAY_S), (30.44 * _DAY_S, "month", 730.0 * _DAY_S),
    (365.25 * _DAY_S, "year", float("inf")),
)  # fmt: skip
"""Seconds of a unit, its name, and the age [s] up to which it is used."""


def age(age_ns: int) -> str:
    """Return a duration in words.

    >>> age(400_000_000), age(1_000_000_000), age(90 * 86_400 * 10**9)
    ('less than a second', '1 second', '3 months')
    """
    seconds = max(0, age_ns) / 1e9
    if round(seconds) < 1:
        return "less than a second"
    size, unit, _ = next(one for one in _AGES if seconds < one[2])
    count = max(1, round(seconds / size))
    return f"{count} {unit}{'' if count == 1 else 's'}"


def stamp(stamp_ns: int) -> str:
    """Return a stamp in words: the date if it is one, else seconds of the simulation's clock."""
    if stamp_ns < _YEAR_NS:
        return f"{stamp_ns / 1e9:.1f} s"
    return dt.datetime.fromtimestamp(stamp_ns / 1e9, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def name(node: SceneNode) -> str:
    """Return the subject of a sentence: "The red cup", "robot0"."""
    return node.label if node.layer == "agent" else f"The {node.label}"


def listed(names: list[str]) -> str:
    """Join names: "the cup, the bowl and the key"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""


def within(sentence: str) -> str:
    """Return a sentence as it is written behind a colon.

    >>> within("The cup is gone."), within("I last saw the cup.")
    ('the cup is gone.', 'I last saw the cup.')
    """
    return sentence if sentence.startswith("I ") else f"{sentence[:1].lower()}{sentence[1:]}"


def named(nodes: Sequence[SceneNode], most: int, count: int) -> str:
    """Return the first ``most`` of ``count`` objects in words: "the cup, the bowl and 3 more"."""
    shown = [f"the {node.label}" for node in nodes[:most]]
    return listed([*shown, *([f"{count - len(shown)} more"] if count > len(shown) else [])])


def coordinates(place: np.ndarray) -> str:
    """Return (3,) m in words."""
    x, y, z = (float(v) for v in place)
    return f"at x {x:.2f}, y {y:.2f}, z {z:.2f} m"


def whereabouts(tracker: Tracker, node: SceneNode, fact: Fact | None) -> str:
    """Return where ``node`` is: coordinates, and what holds or carries it or which known place it is in."""
    carried = support(tracker, fact)
    place = location(tracker, node.pose.position)
    around = carried or (f"at {place}" if place else "")
    return coordinates(node.pose.position) + (f", {around}" if around else "")


def support(tracker: Tracker, fact: Fact | None) -> str:
    """Return what holds or carries an object, "on the table"; empty = nothing, or something no longer known."""
    row = None if fact is None else tracker.columns.row_of.get(fact.target)
    if fact is None or row is None:
        return ""
    label = tracker.columns.about(row).label
    return f"{fact.relation.replace('_', ' ')} {'' if fact.relation == 'held_by' else 'the '}{label}"
