"""A test that may be looked at after every sample: evidence, as a gambler's wealth, that a mean is above 0."""

from __future__ import annotations

import math

import numpy as np

from engram.core.errors import InvalidInputError

SHARES = (0.99, 0.8, 0.5, 0.25, 0.12, 0.06)
"""Bets, as shares of the largest one that cannot ruin the gambler."""
WEIGHTS = (0.4, 0.2, 0.15, 0.1, 0.1, 0.05)
"""How the gambler divides the wealth among the bets."""


class MeanTest:
    """Tests that the mean of independent numbers of at least ``-most_lost`` is 0 or below.

    The wealth of gamblers who bet fixed shares on every number being above 0 is a test martingale: if the mean is 0 or
    below, it reaches 1 / a with a probability of at most a, ever (Ville's inequality; betting: Waudby-Smith & Ramdas
    2024, JRSS-B 86:1, arXiv:2010.09686). So it may be looked at after every number and stopped at any time.

    Args:
        most_lost: how far below 0 a number may be, above 0.
    """

    def __init__(self, most_lost: float) -> None:
        if not (math.isfinite(most_lost) and most_lost > 0):
            raise InvalidInputError(f"MeanTest.most_lost: {most_lost}, expected a finite number above 0")
        self.most_lost, self.n = most_lost, 0
        self._bets = np.array(SHARES) / most_lost
        self._logs = np.log(WEIGHTS)  # of the wealth of each gambler
        self.largest = 0.0
        """Largest log of the wealth so far."""

    @property
    def log_wealth(self) -> float:
        """The natural logarithm of the wealth now; it began at 0."""
        return float(np.logaddexp.reduce(self._logs))

    def add(self, number: float) -> None:
        """Take one number; raises InvalidInputError, and takes nothing, if it is not finite or too far below 0."""
        if not math.isfinite(number) or number < -self.most_lost - 1e-12:
            raise InvalidInputError(f"MeanTest: {number}, expected a finite number of at least {-self.most_lost}")
        self._logs = self._logs + np.log1p(self._bets * number)
        self.n += 1
        self.largest = max(self.largest, self.log_wealth)

    def shown(self, error: float) -> bool:
        """Tell whether it was ever shown that the mean is above 0, wrongly with a probability of at most ``error``."""
        return self.largest >= -math.log(error)
