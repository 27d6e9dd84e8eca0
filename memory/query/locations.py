"""Known places and rooms, and where an object may be when it is looked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engram.memory.graph.containment import last_looks
from engram.memory.graph.tracker import Tracker
from engram.memory.query.advice import Option
from engram.memory.query.hits import Hits
from engram.memory.storage.columns import LAYER_CODE


def options(
    tracker: Tracker, hits: Hits, now_ns: int, usual: Sequence[tuple[np.ndarray, float]] = ()
) -> list[Option]:  # fmt: skip
    """Return where the object may be: where it was last, and, if it left, its ``usual`` places and all others.

    A place that was looked at since the object was last seen counts as much less as the time in which it can have been
    brought there unseen is shorter. What was put down elsewhere on the same surface is found by the same look.
    """
    wanted = hits.nodes[0].label if hits.nodes else ""
    found = [Option(n.pose.position, location(tracker, n.pose.position) or f"{n.label}'s last place", sure)
             for n, sure in zip(hits.nodes, hits.confidence, strict=True)
             if n.label == wanted and n.state != "absent"]  # fmt: skip
    last_seen = max((node.last_seen_ns for node in hits.nodes if node.label == wanted), default=-1)
    rows = _surfaces(tracker)
    centre, half = tracker.columns.position[rows], tracker.columns.half[rows]
    weights = np.full(len(rows), _ANYWHERE / max(1, len(rows)))
    for place, share in usual:
        on = _carriers(place, centre, half)
        weights[on] += (1 - _ANYWHERE) * share / max(1, on.sum())
    looked = last_looks(tracker.columns, tracker.coverage, rows)
    since = (now_ns - looked) / max(1, now_ns - last_seen) if hits.nodes else np.full(len(rows), _UNHEARD_OF)
    weights *= np.where(looked > last_seen, np.clip(since, 0.0, 1.0), 1.0)
    left = max(0.0, _exists(tracker, hits, wanted) - 1.0 + float(np.prod([1.0 - option.seen for option in found])))
    shares = left * weights / (weights.sum() + _NOWHERE)
    for i, option in enumerate(found):
        here = _carriers(option.place, centre, half)
        found[i] = replace(option, moved=float(shares[here].sum()))
        shares[here] = 0.0
    return found + [Option(p.copy(), f"the {tracker.columns.about(int(row)).label}", 0.0, float(s))
                    for row, p, s in zip(rows, centre, shares, strict=True) if s > 0]  # fmt: skip


def own_place(tracker: Tracker) -> np.ndarray | None:
    """Return where the robot whose memory this is stands, (3,) m; None = nobody said so, or it cannot drive."""
    columns, own = tracker.columns, tracker.embodiments.own
    row, body = columns.row_of.get(own), tracker.embodiments.at(own)
    if row is None or body is None or not body.mobile_base or columns.belief[row] == 0:
        return None
    return columns.position[row].copy()


def _exists(tracker: Tracker, hits: Hits, wanted: str) -> float:
    """Return how sure it is that there is a ``wanted`` object at all: if it was never believed, as its belief says."""
    nodes = [node for node in hits.nodes if node.label == wanted]
    if not nodes or any(tracker.history.ever_sure([node.id for node in nodes]).values()):
        return 1.0
    return 1.0 - float(np.prod([1.0 - node.belief for node in nodes]))


_ANYWHERE = 0.3
"""Share of moves that end at no usual place."""
_NOWHERE = 0.05
"""Weight of being at no known place at all, where all usual and other places together have at most 1."""
_UNHEARD_OF = 0.1
"""Weight of a place that was looked at for what was never seen there or elsewhere."""
_ABOVE_M = 0.4
"""What lies within this height above a surface lies on it."""


def _surfaces(tracker: Tracker) -> np.ndarray:
    """Return the rows of places, and of rooms that no known place is in."""
    columns = tracker.columns
    rows = np.sort(np.fromiter(columns.fixed, np.int64, len(columns.fixed)))
    rows = rows[columns.layer[rows] != LAYER_CODE["building"]]
    is_place = columns.layer[rows] == LAYER_CODE["place"]
    offset = np.abs(columns.position[rows][:, None] - columns.position[rows[is_place]][None])
    furnished = (offset < columns.half[rows][:, None]).all(axis=2).any(axis=1)
    return rows[is_place | ~furnished]


def _carriers(place: np.ndarray, centre: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Tell (n,) bool in or on which boxes (n, 3) m a ``place`` (3,) m is."""
    offset = place - centre
    above = (offset[:, 2] > -half[:, 2] - 0.05) & (offset[:, 2] < half[:, 2] + _ABOVE_M)
    return (np.abs(offset[:, :2]) < half[:, :2] + 0.05).all(axis=1) & above


def location(tracker: Tracker, place: np.ndarray) -> str:
    """Return the smallest known place or room that holds (3,) m, "the drawer"; empty = none."""
    columns = tracker.columns
    rows = np.sort(np.fromiter(columns.fixed, np.int64, len(columns.fixed)))
    rows = rows[(np.abs(columns.position[rows] - place) < columns.half[rows] + 0.02).all(axis=1)]
    if not len(rows):
        return ""
    return f"the {columns.about(int(rows[np.argmin(np.prod(columns.half[rows], axis=1))])).label}"
