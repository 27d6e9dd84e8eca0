"""Time of day at which objects are moved: a rate for each hour, and time rescaled by it.

A constant rate is wrong overnight and wrong at noon. With n moves seen in an hour of the day, and e expected of it by
the mean rate and by how long that hour was watched over, its pace is (n + k g) / (e + k): a gamma-distributed rate
around the pace g of the whole home (empirical Bayes). Survival is then a matter of time at that pace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

HOURS = 24
_HOUR_NS = 3600 * 10**9
_PRIOR_MOVES = 0.5
"""Weight of the rhythm of the whole home, in expected moves an hour."""


@dataclass(frozen=True)
class Rhythm:
    """Moving rate of each hour of the day (24,), in the clock's zone, relative to the mean."""

    pace: np.ndarray = field(default_factory=lambda: np.ones(HOURS))

    def seconds(self, start_ns: int, until_ns: int) -> float:
        """Return the time [s] from one instant to another, each hour at its pace."""
        return max(0.0, self._at(until_ns) - self._at(start_ns))

    def _at(self, stamp_ns: int) -> float:
        hours, rest = divmod(stamp_ns, _HOUR_NS)
        days, hour = divmod(hours, HOURS)
        begun = self._begun
        return days * begun[HOURS] + begun[hour] + (begun[hour + 1] - begun[hour]) * (rest / _HOUR_NS)

    @cached_property
    def _begun(self) -> list[float]:
        """Time of the day [s] at which each hour begins, at its pace; and the day's end."""
        return [0.0, *(3600.0 * np.cumsum(self.pace)).tolist()]


def hours_between(start_ns: int, until_ns: int) -> np.ndarray:
    """Return how many seconds of each hour of the day (24,) lie between two instants."""
    if until_ns <= start_ns:
        return np.zeros(HOURS)
    first, last = start_ns // _HOUR_NS, (until_ns - 1) // _HOUR_NS
    days, rest = divmod(last - first + 1, HOURS)
    hours = np.full(HOURS, float(days))
    hours[(first + np.arange(rest)) % HOURS] += 1.0
    hours[first % HOURS] -= (start_ns - first * _HOUR_NS) / _HOUR_NS
    hours[last % HOURS] -= ((last + 1) * _HOUR_NS - until_ns) / _HOUR_NS
    return hours * 3600.0


def moved_between(start_ns: int, until_ns: int) -> np.ndarray:
    """Return the share (24,) of each hour in a move at an unknown time between two instants."""
    hours = hours_between(start_ns, max(until_ns, start_ns + 1))
    return hours / hours.sum()


def rhythm_of(moves: np.ndarray, watched_s: np.ndarray, home: Rhythm | None = None) -> Rhythm:
    """Return what ``moves`` (24,) in ``watched_s`` (24,) s of each hour tell, beside the rhythm of the ``home``."""
    around = np.ones(HOURS) if home is None else home.pace
    if not watched_s.sum() > 0:
        return Rhythm(around)
    expected = moves.sum() * watched_s / watched_s.sum()
    return Rhythm((moves + _PRIOR_MOVES * around) / (expected + _PRIOR_MOVES))
