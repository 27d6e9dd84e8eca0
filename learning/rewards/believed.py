"""Whose verdict counts where several sources judge the same goal: one rule for the nodes and for a practice."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from engram.core.types import CANNOT_TELL, Verdict
from engram.learning.rewards.contract import Moment, RewardSource

MEMORY = "memory"
"""Name of the source that is believed first."""
RECENT_NS = 2_000_000_000
"""A verdict that is not older tells how the goal stands now [ns]."""


def believed(told: Collection[Verdict], now_ns: int) -> Verdict:
    """Return the verdict that counts at ``now_ns``, of the newest of each source.

    The memory is believed where it can tell, else another that can. Where none can, a verdict that says how near the
    goal is counts, the memory's first. Of a source that fell silent nothing counts, unless all did: then the newest.
    """
    recent = [one for one in told if now_ns - one.stamp_ns <= RECENT_NS]
    if not recent:
        return max(told, key=lambda one: one.stamp_ns)

    def rank(one: Verdict) -> tuple[bool, bool, bool]:
        lost = one.outcome == CANNOT_TELL
        return lost, lost and math.isnan(one.progress), one.source != MEMORY

    return min(recent, key=rank)


class MemoryFirst(RewardSource):
    """Asks several sources about one episode, and says what :func:`believed` makes of it."""

    def __init__(self, sources: Sequence[RewardSource]) -> None:
        self._sources = tuple(sources)
        self.name = "+".join(one.name for one in sources)
        self.reads_features = any(one.reads_features for one in sources)

    def begin(self, instruction: str) -> None:
        """Take the words of a new episode."""
        for one in self._sources:
            one.begin(instruction)

    def knows(self, instruction: str) -> bool:
        """Whether any of the sources can judge it."""
        return any(one.knows(instruction) for one in self._sources)

    @property
    def things(self) -> tuple[str, ...]:
        """What any of the sources wants to be told of."""
        return tuple(dict.fromkeys(thing for one in self._sources for thing in one.things))

    def shift(self, by_ns: int, now_ns: int) -> None:
        """Pass on that the clock was set back."""
        for one in self._sources:
            one.shift(by_ns, now_ns)

    def judge(self, moment: Moment) -> Verdict:
        """Return the verdict that counts; every source sees the moment, as in the nodes."""
        return believed([one.judge(moment) for one in self._sources], moment.stamp_ns)
