"""Refuses what is stamped far from now, before anything remembers it. No ROS in here."""

from __future__ import annotations

from collections.abc import Callable

from engram.core.stamped_buffer import RESTART_NS, WALL_CLOCK_NS, clock_restarted

AHEAD_NS = 5 * 10**9
"""Stamps further ahead of the clock are refused [ns]: a message of a simulation may be here before its /clock."""
AHEAD_OF_WALL_NS = RESTART_NS // 2
"""So are those of scenes further ahead of a wall clock [ns]: a sender that is ahead would make all others too late."""
BEHIND_NS = 60 * 10**9
"""Stamps further behind the clock are refused [ns]: the slowest detector is not so late."""


class StampGuard:
    """Compares stamps with the clock of the node; with none (a program feeds the memory itself), all are taken."""

    def __init__(self, now_ns: Callable[[], int] | None = None) -> None:
        self._now_ns = now_ns

    def ahead(self, stamp_ns: int) -> str:
        """Say why something that may be old, such as the last status, is not taken: it is of the future."""
        if self._now_ns is None or (ahead_ns := stamp_ns - self._now_ns()) <= AHEAD_NS:
            return ""
        return f"stamped {ahead_ns / 1e9:.1f} s ahead of the clock"

    def refuses(self, stamp_ns: int, newest_ns: int | None = None) -> str:
        """Say why something stamped ``stamp_ns`` is not taken; empty: it is.

        With the ``newest_ns`` that was taken before, what is late is refused as well: only when the clock itself went
        back, as at the restart of a simulation, may an older stamp be the beginning of another time.
        """
        if self._now_ns is None:
            return ""
        if ahead := self.ahead(stamp_ns):
            return ahead
        now_ns = self._now_ns()
        if now_ns > WALL_CLOCK_NS and stamp_ns > now_ns + AHEAD_OF_WALL_NS:
            return (
                f"stamped {(stamp_ns - now_ns) / 1e9:.1f} s ahead of the clock; synchronise the machines, or give its "
                "sender the same use_sim_time"
            )
        if stamp_ns < now_ns - BEHIND_NS:
            return (
                f"stamped {(now_ns - stamp_ns) / 1e9:.1f} s before the clock; does its sender run on another clock? "
                "(use_sim_time)"
            )
        if newest_ns is not None and clock_restarted(newest_ns, stamp_ns) and not clock_restarted(newest_ns, now_ns):
            return f"{(newest_ns - stamp_ns) / 1e9:.1f} s older than the newest, and the clock did not go back"
        return ""
