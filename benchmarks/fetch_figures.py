"""Trips of a fetching robot -> success within limits, exploration beside none and beside perfect knowledge, advice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engram.benchmarks.household_figures import rate
from engram.benchmarks.report import figure

ARMS = ("none", "short_term", "long_term", "both")
ASKERS = ("never", "always", "advised")
CURVE = range(1, 16)
"""Limits of looks for which success is told, so that nobody need trust the choice of one."""
SUCCESS_TARGET, EXPLORED_TARGET = 2.3, 1 / 3
_DRAWS = 2000
Estimate = tuple[float, tuple[float, float]]
"""A value and its 95 % interval."""


@dataclass(frozen=True)
class Trip:
    """What one search did."""

    stream: str  # the day of tasks that it belongs to: its trips depend on each other
    success: bool
    looks: int
    rooms: int
    metres: float


def figures(trips: Mapping[str, Sequence[Trip]], limit: int) -> list[dict]:
    """Return success within ``limit`` looks and exploration of each arm, their ratios, and what advice saves.

    Trips of one position are of one task in every arm.
    """
    rows = []
    for arm in (*ARMS, "oracle"):
        rows.append(_success(f"fetch_{arm}_success", trips[arm], limit))
        for what in ("looks", "rooms", "metres"):
            rows.append(_mean(f"fetch_{arm}_{what}_to_success", _values(trips[arm], what)))
    within = {arm: _within(trips[arm], limit) for arm in ("both", "none")}
    ratio = _ratio(trips["both"], within["both"], within["none"])
    rows.append(_judged("fetch_success_both_over_none", ratio, trips["both"], ">= 2.3", ratio[0] >= SUCCESS_TARGET))
    for looks in CURVE:
        rows += [_success(f"fetch_{arm}_success_within_{looks}_looks", trips[arm], looks) for arm in ("none", "both")]
    for what in ("looks", "rooms", "metres"):
        both, none, least = (_values(trips[arm], what) for arm in ("both", "none", "oracle"))
        part = _ratio(trips["both"], both, none)
        rows.append(
            _judged(f"fetch_{what}_both_over_none", part, trips["both"], "<= 0.333", part[0] <= EXPLORED_TARGET)
        )
        floor = _ratio(trips["both"], least, none)
        rows.append(_judged(f"fetch_{what}_oracle_over_none", floor, trips["both"], "", None))
        more = _excess(trips["both"], both, none, least)
        rows.append(_judged(f"fetch_{what}_beyond_oracle_both_over_none", more, trips["both"], "<= 0.333",
                            more[0] <= EXPLORED_TARGET))  # fmt: skip
    return rows + _advice_figures(trips)


def limit_figures(trips: Mapping[str, Sequence[Trip]]) -> list[dict]:
    """Return what the best possible memory ("limit") and perfect knowledge explore, beside none."""
    rows = []
    for what in ("looks", "rooms", "metres"):
        none = _values(trips["none"], what)
        rows.append(_mean(f"fetch_limit_none_{what}", none))
        for arm in ("limit", "oracle"):
            part = _ratio(trips[arm], _values(trips[arm], what), none)
            rows.append(_judged(f"fetch_{what}_{arm}_over_none", part, trips[arm], "", None))
    return rows


def _advice_figures(trips: Mapping[str, Sequence[Trip]]) -> list[dict]:
    rows = []
    for arm in ASKERS:
        rows.append(rate(f"where_{arm}_right", sum(t.success for t in trips[arm]), len(trips[arm])))
        rows.append(_mean(f"where_{arm}_metres", _values(trips[arm], "metres")))
    told = trips["advised"]
    metres = {arm: _values(trips[arm], "metres") for arm in ASKERS}
    right = {arm: _values(trips[arm], "success") for arm in ASKERS}
    saved = _ratio(told, metres["advised"], metres["always"])
    rows.append(_judged("where_advised_metres_over_always", saved, told, "< 1", saved[0] < 1))
    lost = _resampled(told, lambda i: right["always"][i].mean() - right["advised"][i].mean())
    rows.append(_judged("where_advised_right_below_always", lost, told, "<= 0.02", lost[0] <= 0.02))
    gain = _resampled(told, lambda i: right["advised"][i].mean() - right["never"][i].mean())
    rows.append(_judged("where_advised_right_above_never", gain, told, "> 0", gain[0] > 0))
    return rows


def _values(trips: Sequence[Trip], what: str) -> np.ndarray:
    return np.array([getattr(trip, what) for trip in trips], float)


def _within(trips: Sequence[Trip], limit: int) -> np.ndarray:
    return np.array([trip.success and trip.looks <= limit for trip in trips], float)


def _ratio(trips: Sequence[Trip], over: np.ndarray, under: np.ndarray) -> Estimate:
    return _resampled(trips, lambda i: over[i].mean() / max(under[i].mean(), 1e-9))


def _excess(trips: Sequence[Trip], both: np.ndarray, none: np.ndarray, least: np.ndarray) -> Estimate:
    """Return how much more than perfect knowledge ``both`` takes, as a share of how much more ``none`` does."""
    return _resampled(trips, lambda i: (both[i].mean() - least[i].mean()) / max(none[i].mean() - least[i].mean(), 1e-9))


def _resampled(trips: Sequence[Trip], statistic: Callable[[np.ndarray], float]) -> Estimate:
    """Return a statistic of the tasks with its 95 % interval: a bootstrap that draws whole streams (Efron, 1979).

    Of a single stream it draws tasks; they depend on each other, so that interval is too narrow.
    """
    streams = sorted({trip.stream for trip in trips})
    blocks = [np.array([i for i, trip in enumerate(trips) if trip.stream == stream]) for stream in streams]
    if len(blocks) == 1:
        blocks = list(np.arange(len(trips))[:, None])
    draws = np.random.default_rng(0).integers(len(blocks), size=(_DRAWS, len(blocks)))
    values = [statistic(np.concatenate([blocks[k] for k in draw])) for draw in draws]
    low, high = np.percentile(values, (2.5, 97.5))
    return float(statistic(np.arange(len(trips)))), (float(low), float(high))


def _success(name: str, trips: Sequence[Trip], limit: int) -> dict:
    return rate(name, int(_within(trips, limit).sum()), len(trips))


def _mean(name: str, values: np.ndarray) -> dict:
    half = 1.96 * float(np.std(values)) / max(1.0, np.sqrt(len(values)))
    mean = float(np.mean(values))
    return figure(name, mean, len(values), (mean - half, mean + half), "")


def _judged(name: str, found: Estimate, trips: Sequence[Trip], target: str, met: bool | None) -> dict:
    value, interval = found
    return figure(name, value, len(trips), interval, target, None if met is None else bool(met), digits=4)
