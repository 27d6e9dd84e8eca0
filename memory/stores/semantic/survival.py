"""How long objects of a class stay where they are: Kaplan-Meier, and a constant rate where little is known."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log

import numpy as np
from scipy.stats import CensoredData, ecdf, gamma

from engram.core.errors import InvalidInputError

# SciPy warns that log-log intervals do not exist where the curve is 1 or 0; still_there() says what holds there
warnings.filterwarnings("ignore", "The confidence interval is undefined", RuntimeWarning)


_PRIOR_STAYS = 5.0
"""Weight of the constant rate, in stays."""


@dataclass(frozen=True)
class Chance:
    """A probability with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.value:.0f} % [{100 * self.low:.0f}, {100 * self.high:.0f}]"


@dataclass(frozen=True)
class MovingRate:
    """Moves a second if the chance to be moved does not depend on how long an object has been there."""

    moves: int
    exposure_s: float  # time that objects of the class were watched over, moved or not
    rate: float
    low: float
    high: float
    prior_s: float = 0.0
    """Half a move in this time is what others of the kind's home suggest; 0: nothing is known of others."""

    def still_there(self, age_s: float) -> Chance:
        """Return the chance that an object stayed for ``age_s`` more seconds.

        By the mean of a gamma-distributed rate, half a move in ``prior_s`` before anything was seen (Jeffreys, and the
        mean of the others as in empirical Bayes): who never saw one move is not sure that none does.
        """
        return Chance(exp(-self.mean * age_s), exp(-self.high * age_s), exp(-self.low * age_s))

    @property
    def mean(self) -> float:
        """Moves a second by that mean."""
        return min(max((self.moves + 0.5) / (self.exposure_s + self.prior_s), self.low), self.high)

    @property
    def median_s(self) -> float:
        """Time after which half of the objects have moved; infinite when none ever did."""
        return log(2) / self.rate if self.rate > 0 else inf


def moving_rate(moves: int, exposure_s: float, prior_s: float = 0.0) -> MovingRate:
    """Return the rate with its exact 95 % interval (Garwood 1936: the gamma quantiles of a Poisson count).

    Memoryless: stays whose beginning was not seen count with the time that was.
    """
    if moves < 0 or not exposure_s > 0:
        raise InvalidInputError(f"moving_rate: {moves} moves in {exposure_s} s, expected 0 or more in a time above 0")
    low = float(gamma.ppf(0.025, moves)) / exposure_s if moves else 0.0
    return MovingRate(moves, exposure_s, moves / exposure_s, low, float(gamma.ppf(0.975, moves + 1)) / exposure_s,
                      prior_s)  # fmt: skip


class SurvivalCurve:
    """Kaplan-Meier estimate from stays (n,) [s]; those that did not end yet are censored."""

    def __init__(self, stayed_s: Sequence[float], ended: Sequence[bool]) -> None:
        stayed, over = np.asarray(stayed_s, np.float64), np.asarray(ended, bool)
        if len(stayed) != len(over) or not over.any():
            raise InvalidInputError(f"SurvivalCurve: {len(stayed)} stays of which {over.sum()} ended, expected some")
        curve = ecdf(CensoredData(uncensored=stayed[over], right=stayed[~over])).sf
        interval = curve.confidence_interval(method="log-log")
        self._times = curve.quantiles
        self._values = curve.probabilities
        self._low, self._high = interval.low.probabilities, interval.high.probabilities
        self._stayed, self._ends = np.sort(stayed), np.sort(stayed[over])

    def still_there(self, age_s: float) -> Chance:
        """Return the share of stays that are longer than ``age_s``; beyond the longest, what held at its end."""
        i = int(np.searchsorted(self._times, age_s, side="right")) - 1
        if i < 0:
            return Chance(1.0, 1.0, 1.0)
        value = float(self._values[i])
        low, high = float(self._low[i]), float(self._high[i])  # not a number where the curve reaches 0 or is 1
        return Chance(value, low if np.isfinite(low) else 0.0, high if np.isfinite(high) else max(value, 1.0))

    def goes_on(self, known_s: float, age_s: float, rate: MovingRate) -> Chance:
        """Return the chance that a stay that lasted ``known_s`` lasts to ``age_s``.

        By the posterior mean of the hazard between these stays and a constant ``rate`` that counts as ``_PRIOR_STAYS``
        of them (the beta process of Hjort, 1990): where few were watched for so long, that none of them ended is no
        reason to be sure. The interval takes both ends of the rate's, and Greenwood's variance.
        """
        ends = self._ends[(self._ends > known_s) & (self._ends <= age_s)]
        lasting = len(self._stayed) - np.searchsorted(self._stayed, ends)
        lasting = _PRIOR_STAYS + lasting - (np.arange(len(ends)) - np.searchsorted(ends, ends))  # one tie after another
        ended = float(np.log1p(-1.0 / lasting).sum())
        edges = np.array([known_s, *self._stayed[(self._stayed > known_s) & (self._stayed < age_s)], age_s])
        share = _PRIOR_STAYS / (_PRIOR_STAYS + len(self._stayed) - np.searchsorted(self._stayed, edges[1:]))
        prior_s = float((share * np.diff(edges)).sum())
        spread = 1.96 * float(np.sqrt((1.0 / (lasting * (lasting - 1.0))).sum()))
        low, high = exp(ended - spread - rate.high * prior_s), exp(ended + spread - rate.low * prior_s)
        return Chance(exp(ended - rate.mean * prior_s), low, min(1.0, high))

    @property
    def median_s(self) -> float:
        """First time by which half of the stays had ended; infinite if it never came to that."""
        below = np.flatnonzero(self._values <= 0.5)
        return float(self._times[below[0]]) if len(below) else inf
