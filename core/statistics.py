"""Intervals for success rates."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engram.core.errors import InvalidInputError

Z_95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


@dataclass(frozen=True)
class Rate:
    """A measured share with its 95 % interval, all 0..1."""

    successes: int
    n: int
    rate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.rate:.3f} [{self.low:.3f}, {self.high:.3f}] n={self.n}"


def wilson(successes: int, n: int, z: float = Z_95) -> Rate:
    """Return ``successes`` of ``n`` with Wilson's score interval (Wilson 1927, JASA 22:209).

    Unlike the normal interval it stays inside 0..1 and does not vanish at 0 or n successes.

    >>> str(wilson(8, 10))
    '0.800 [0.490, 0.943] n=10'
    """
    if n <= 0 or not 0 <= successes <= n:
        raise InvalidInputError(f"wilson: {successes} of {n}, expected 0 <= successes <= n and n > 0")
    p = successes / n
    scale = 1.0 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / scale
    return Rate(successes, n, p, max(0.0, centre - half), min(1.0, centre + half))


def mean_rate(rates: list[Rate]) -> Rate:
    """Return the unweighted mean of the rates of independent tasks and its interval.

    The half widths of independent rates add in squares, each side for itself (MOVER: Zou & Donner 2008), so that
    tasks of unlike size count alike.
    """
    if not rates:
        raise InvalidInputError("mean_rate: no rates, expected at least one")
    k = len(rates)
    mean = sum(r.rate for r in rates) / k
    below = math.sqrt(sum((r.rate - r.low) ** 2 for r in rates)) / k
    above = math.sqrt(sum((r.high - r.rate) ** 2 for r in rates)) / k
    return Rate(sum(r.successes for r in rates), sum(r.n for r in rates), mean, mean - below, mean + above)
