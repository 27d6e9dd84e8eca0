"""When a control step waits for the policy's answer to its own observation. No ROS; called from one thread."""

from __future__ import annotations

from collections.abc import Callable

from engram.core.types import ActionChunk

NEXT = 0.95
"""A measurement this share of a control step after the one before begins the next: stamps are not exact."""


class AnswerWait:
    """A robot that does not wait for its policy grants it a part of the control step that the answer is to begin.

    An answer that comes within it drives from its first action on, and nothing has to be made up for. A policy that
    takes longer is not waited for again until an answer comes in time: what is left of the chunk before bridges.

    Args:
        share: of a control step, the longest wait.
        control_dt_s: length of a control step [s].
        clock: tells the time [s].
    """

    def __init__(self, share: float, control_dt_s: float, clock: Callable[[], float]) -> None:
        self._share, self._dt_s, self._clock = share, control_dt_s, clock
        self.begin()

    def begin(self) -> None:
        """Motion begins anew: the policy is taken for one that answers in time."""
        self._prompt = True
        self._step_ns: int | None = None  # of the newest step
        self._step_at = self._first_at = self._clock()

    def measured(self, stamp_ns: int) -> None:
        """Note that the step at ``stamp_ns`` may begin."""
        if self._step_ns is None:
            self._first_at = self._clock()
        self._step_ns, self._step_at = stamp_ns, self._clock()

    def answered(self, stamp_ns: int) -> bool:
        """Note that the answer to the observation at ``stamp_ns`` has come; tell whether it came in time."""
        if self._step_ns is not None:
            behind = self.steps(stamp_ns, self._step_ns)
            self._prompt = behind < 0.5 and self._clock() - self._step_at <= self._share * self._dt_s
        return self._prompt

    def is_due(self, chunk: ActionChunk | None) -> bool:
        """Tell whether the policy has been asked for what follows ``chunk``, not merely nearly."""
        if self._step_ns is None:
            return False
        return chunk is None or self.steps(chunk.stamp_ns, self._step_ns) >= chunk.execute_steps - 1 + NEXT

    def goes_on(self, first: bool) -> bool:
        """Tell whether the newest step still waits; the ``first`` of a motion waits a control step longer.

        The policy's own steps may begin as much later, on a robot that reports its joints faster than it is controlled.
        """
        began, share = (self._first_at, 1.0 + self._share) if first else (self._step_at, self._share)
        self._prompt &= self._clock() - began < share * self._dt_s
        return self._prompt

    def steps(self, from_ns: int, to_ns: int) -> float:
        """Return the control steps between two stamps."""
        return (to_ns - from_ns) / 1e9 / self._dt_s
