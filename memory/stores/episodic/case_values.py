"""Learned value of a memory entry: the mean return of the tasks whose actions carried its id.

REMEMBERER (Zhang et al. 2023) and AgentFly (Zhou et al. 2025): selection improves with outcomes while the policy's
weights stay as they are. One-step Q learning with the step size 1 / n, which is the mean return.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from math import log, sqrt


@dataclass(frozen=True)
class ValueConfig:
    """Prior and exploration."""

    prior: float = 0.5
    """Prior value of an entry that was never used."""
    prior_weight: float = 1.0
    """Number of uses that the prior is worth."""
    exploration: float = 0.1
    """Weight of the upper confidence bound: how much a rarely used memory is favoured."""
    capacity: int = 16384
    """Memories whose value is kept, those without credit for longest first out."""


class CaseValues:
    """id -> mean return (0..1) and number of uses."""

    def __init__(self, config: ValueConfig | None = None) -> None:
        self.config = config or ValueConfig()
        self._uses: OrderedDict[str, tuple[float, float]] = OrderedDict()  # n, mean return
        self._total = 0.0
        self.changed: set[str] = set()
        self.removed: set[str] = set()

    def credit(self, ids: Iterable[str], return_: float) -> None:
        """Credit each of ``ids`` once with ``return_``, cut to 0..1."""
        value = min(max(return_, 0.0), 1.0)
        for key in dict.fromkeys(ids):
            n, mean = self.uses(key)
            self.put(key, n + 1, mean + (value - mean) / (n + 1))
            self.changed.add(key)

    def put(self, key: str, n: float, mean: float) -> None:
        """Set what is known of ``key``; over capacity, the value that was not credited for longest goes."""
        self._total += n - self._uses.pop(key, (0.0, 0.0))[0]
        self._uses[key] = (n, mean)
        self.removed.discard(key)
        self.shrink(self.config.capacity)

    def __len__(self) -> int:
        """Return of how many memories the value is known."""
        return len(self._uses)

    def shrink(self, keep: int) -> None:
        """Forget the values that were not credited for longest, until ``keep`` are left."""
        while len(self._uses) > keep:
            oldest = self._uses.popitem(last=False)[0]
            self.changed.discard(oldest)
            self.removed.add(oldest)

    def uses(self, key: str) -> tuple[float, float]:
        """Return the number of uses and the mean return of ``key``; (0, 0) when it was never used."""
        return self._uses.get(key, (0.0, 0.0))

    def value(self, key: str) -> float:
        """Return the posterior mean (0..1) of the return when ``key`` is used."""
        n, mean = self.uses(key)
        weight = self.config.prior_weight
        return (weight * self.config.prior + n * mean) / (weight + n)

    def optimistic(self, key: str) -> float:
        """Return the value plus the bonus of UCB1 (Auer et al. 2002), cut to 0..1."""
        n, _ = self.uses(key)
        bonus = self.config.exploration * sqrt(2 * log(1 + self._total) / (1 + n))
        return min(1.0, self.value(key) + bonus)
