"""What one control step of a policy needs, arriving over three topics: observation, episode status, memory context."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from engram.core.stamped_buffer import StampedBuffer
from engram.core.types import EpisodeStatus, MemoryTokens, Observation

KEPT = 64
"""Observations, statuses and memory contexts kept while they wait for each other: as many steps as a chunk has."""


@dataclass(frozen=True)
class StepInputsConfig:
    """What an observation waits for."""

    lockstep: bool = False
    """Every observation waits for the status of its very step; otherwise the newest status is good enough."""
    memory: str = "latest"
    """Memory context: off, latest (the newest there is) or wait (for the one of the same observation)."""
    context_age_s: float = 0.3
    """In lock-step a policy that reads contexts waits for one of its episode, at most so much older than the
    observation [s]."""
    missing_after_s: float = 2.0
    """It goes on without one after this [s], as a simulation that stands still shows the memory nothing. Without
    lock-step it waits for one that is at most so much older, however long that takes."""


@dataclass(frozen=True, slots=True)
class StepInput:
    """One control step, complete."""

    observation: Observation
    status: EpisodeStatus
    memory: MemoryTokens | None


class StepInputs:
    """Joins the three by stamp and gives out complete steps, oldest first.

    Args:
        config: what an observation waits for.
        reads_context: tells whether the policy that drives acts on memory contexts.
        report: takes a problem's key and text.
        count: takes the name of a counter to add one to.
        clock: gives the time [s] that waiting is measured in.
    """

    def __init__(
        self,
        config: StepInputsConfig,
        reads_context: Callable[[], bool],
        report: Callable[[str, str], None],
        count: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.overruled = False
        """A person drives: no observation waits for the memory."""
        self._reads_context, self._report, self._count, self._clock = reads_context, report, count, clock
        self._ready: StampedBuffer[Observation] = StampedBuffer(KEPT)
        self._statuses: StampedBuffer[EpisodeStatus] = StampedBuffer(KEPT)
        self._memory: StampedBuffer[MemoryTokens] = StampedBuffer(KEPT)
        self.status: EpisodeStatus | None = None  # as told last
        self._stale_since: float | None = None  # since when a fresh context is waited for
        self._episode, self._begun_ns = -1, 0  # the episode that runs, or ran last, and the stamp of its first step

    def observed(self, observation: Observation) -> None:
        """Take in an observation."""
        for _ in self._ready.add(observation.stamp_ns, observation):
            self._count("observations given up")

    def became(self, status: EpisodeStatus) -> None:
        """Take in what the episode is doing."""
        for buffer in (self._ready, self._memory):
            if buffer.restarts(status.stamp_ns):
                buffer.clear()
        if status.running and (status.episode != self._episode or status.stamp_ns < self._begun_ns):
            self._episode, self._begun_ns = status.episode, status.stamp_ns
        self.status = status
        self._statuses.add(status.stamp_ns, status)

    def remembered(self, tokens: MemoryTokens) -> None:
        """Take in a memory context."""
        self._memory.add(tokens.stamp_ns, tokens)

    def waiting(self) -> bool:
        """Tell whether an observation waits for its status or its memory."""
        return len(self._ready) > 0

    def awaits_memory(self) -> bool:
        """Tell whether the oldest observation waits for nothing but its memory context."""
        stamp_ns = self._ready.oldest_ns
        if stamp_ns is None or (self.config.lockstep and stamp_ns not in self._statuses):
            return False
        if self.config.memory == "wait":
            return stamp_ns not in self._memory and not self.overruled
        return self._lacks_fresh(stamp_ns)

    def take(self) -> list[StepInput]:
        """Return every step for which everything is there; each is given out once."""
        taken = []
        for stamp_ns in self._ready.stamps:
            status = self._statuses.at(stamp_ns) if self.config.lockstep else self.status
            if status is None or (status.running and self._awaits_memory(stamp_ns)):
                continue
            observation = self._ready.pop(stamp_ns)
            assert observation is not None
            taken.append(StepInput(observation, status, self._memory_at(stamp_ns)))
        return taken

    def _memory_at(self, stamp_ns: int) -> MemoryTokens | None:
        """Return the context for the observation at ``stamp_ns``; None: there is none, or none to act on."""
        found = self._memory.at(stamp_ns)
        if found is not None or self.config.memory != "latest":
            return found
        found = self._memory.newest
        if found is None or not self._reads_context():
            return found
        oldest_ns = stamp_ns - round(self.config.missing_after_s * 1e9)
        if self.config.lockstep:
            oldest_ns = max(oldest_ns, self._begun_ns)
        return found if found.stamp_ns >= oldest_ns else None

    def _lacks_fresh(self, stamp_ns: int) -> bool:
        """Tell whether a policy that reads contexts has none that is fresh enough for the observation at ``stamp_ns``.

        In lock-step that ends by itself.
        """
        config, newest_ns = self.config, self._memory.newest_ns
        if config.memory != "latest" or config.lockstep or not self._reads_context() or self.overruled:
            return False
        return newest_ns is None or newest_ns < stamp_ns - round(config.missing_after_s * 1e9)

    def _awaits_memory(self, stamp_ns: int) -> bool:
        """Tell whether the observation at ``stamp_ns`` waits for another context than there is."""
        config = self.config
        if config.memory == "wait":
            return stamp_ns not in self._memory and not self.overruled
        if self._lacks_fresh(stamp_ns):
            newest_ns = self._memory.newest_ns
            there = "there is none"
            if newest_ns is not None:
                there = f"the newest is {(stamp_ns - newest_ns) / 1e9:.0f} s older than the observation"
            self._report("memory/context", f"{there}: the policy waits (missing_after_s; memory: off does without)")
            return True
        if config.memory == "off" or not config.lockstep or not self._reads_context():
            return False
        oldest_ns = max(stamp_ns - round(config.context_age_s * 1e9), self._begun_ns)  # before, another scene was seen
        newest_ns = self._memory.newest_ns
        if newest_ns is not None and newest_ns >= oldest_ns:
            self._stale_since = None
            return False
        now = self._clock()
        self._stale_since = self._stale_since or now
        if now - self._stale_since < config.missing_after_s:
            return True
        self._report("memory/context", f"none since {config.context_age_s:g} s before the observation: goes on")
        return False
