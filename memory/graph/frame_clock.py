"""Which frames a memory takes by their stamps. One wrong stamp must not age, or blind, all that is remembered."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from engram.core.clock_trust import ClockTrust
from engram.core.stamped_buffer import WALL_CLOCK_NS, clock_restarted

AHEAD_NS = 3600 * 10**9
"""A stamp this far ahead of this machine's clock [ns] is wrong: clocks of one system differ by less."""
SET_BACK_NS = 60 * 10**9
"""If the newest stamp is this far ahead of this machine's clock [ns], the clock was set back: it was wrong before."""
FRAMES = 3
"""Frames in a row, each newer than the last, that show that another clock has begun."""
GAP_NS = 60 * 10**9
"""Longest time between two of them [ns]."""


@dataclass(frozen=True)
class Verdict:
    """What to do with a frame."""

    refused: str = ""
    """Why it is not taken; empty: it is."""
    began_ns: int | None = None
    """When the clock began anew, if this frame confirms that it did [ns]."""


class FrameClock:
    """Judges each frame by its stamp and by the newest stamp that the memory has."""

    def __init__(self, now_ns: Callable[[], int] = time.time_ns, trust: ClockTrust | None = None) -> None:
        self._now_ns = now_ns
        self._trust = trust or ClockTrust(lambda: self._now_ns())
        self._unsure: list[int] = []  # stamps of refused frames in a row that another clock would explain

    def judge(self, newest_ns: int, stamp_ns: int) -> Verdict:
        """Say whether a frame at ``stamp_ns`` is taken; ``newest_ns`` is 0 in a new memory.

        A simulation's clock may begin anew. The wall clock does not, so there an old stamp is a wrong one, unless this
        machine's own clock was set back; one that has not been set since the machine started tells nothing.
        """
        self._trust.look()
        ahead = stamp_ns - self._now_ns()
        if ahead > AHEAD_NS:
            return Verdict(f"its stamp is {_span(ahead)} ahead of this machine's clock")
        was_wall, is_wall = newest_ns > WALL_CLOCK_NS, stamp_ns > WALL_CLOCK_NS
        if newest_ns == 0 or (was_wall == is_wall and not clock_restarted(newest_ns, stamp_ns)):
            self._unsure.clear()
            return Verdict()
        if was_wall and is_wall and newest_ns - self._now_ns() > SET_BACK_NS:
            if doubt := self._trust.doubt():
                return Verdict(f"its stamp is {_span(newest_ns - stamp_ns)} before the newest in the memory; {doubt}")
            return self._confirm(newest_ns, stamp_ns, restarts=True)
        if was_wall:
            back = (
                f"its stamp is {_span(newest_ns - stamp_ns)} before the newest in the memory, which has wall-clock time"
            )
            return Verdict(back if is_wall else f"{back}; a simulation needs a store of its own")
        return self._confirm(newest_ns, stamp_ns, restarts=not is_wall)

    def _confirm(self, newest_ns: int, stamp_ns: int, *, restarts: bool) -> Verdict:
        """Take a frame of another clock when it is the last of several in a row."""
        if self._unsure and not -GAP_NS <= self._unsure[-1] - stamp_ns <= 0:
            self._unsure.clear()
        if not self._unsure or stamp_ns > self._unsure[-1]:
            self._unsure.append(stamp_ns)
        if len(self._unsure) < FRAMES:
            away = _span(abs(newest_ns - stamp_ns))
            return Verdict(
                f"its stamp is {away} from the newest in the memory; {len(self._unsure)} of {FRAMES} frames in a row "
                "that another clock would explain"
            )
        began_ns = self._unsure[0]
        self._unsure.clear()
        return Verdict(began_ns=began_ns if restarts else None)


def _span(duration_ns: int) -> str:
    """Return a duration in words."""
    seconds = duration_ns / 1e9
    return f"{seconds:.1f} s" if seconds < 3600 else f"{seconds / 3600:.1f} h"
