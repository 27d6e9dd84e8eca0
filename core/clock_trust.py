"""Is this machine's clock to be believed where it is behind what was stored? One that has not been set yet is not.

A machine without a battery for its clock starts at an old time, and is minutes, or decades, behind until NTP sets it.
What is stored is right then, and must not be moved. A clock that ran ahead and was put right is behind, too; there the
clock is right.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

WAIT_S = 600.0
"""So long after its start a clock that nobody synchronizes is believed all the same [s]: NTP takes minutes at most."""
SET_NS = 10 * 10**9
"""A clock that went back by so much before our eyes was set."""
_UNSYNCHRONIZED = 5
"""What the kernel's adjtimex returns: TIME_ERROR."""


def synchronized() -> bool:
    """Return whether the kernel says that this machine's clock is synchronized; False where it does not tell."""
    try:
        return 0 <= int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))) != _UNSYNCHRONIZED  # asks alone
    except (AttributeError, OSError):  # no Linux
        return False


class ClockTrust:
    """Follows a clock; ask it often enough to see when it is set.

    Args:
        now_ns: tells the time of the clock.
        is_synchronized: tells whether somebody keeps the clock right.
        passed_s: tells passed time, which nobody can set.
    """

    def __init__(
        self,
        now_ns: Callable[[], int] = time.time_ns,
        is_synchronized: Callable[[], bool] = synchronized,
        passed_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now_ns, self._is_synchronized, self._passed_s = now_ns, is_synchronized, passed_s
        self._began_s, self._latest_ns, self._was_set = passed_s(), 0, False

    def look(self) -> None:
        """See what time it is."""
        now_ns = self._now_ns()
        self._was_set |= now_ns < self._latest_ns - SET_NS
        self._latest_ns = max(now_ns, self._latest_ns)

    def doubt(self) -> str:
        """Return why the clock is not to be believed yet; empty: it is."""
        self.look()
        left_s = WAIT_S - (self._passed_s() - self._began_s)
        if self._was_set or left_s <= 0 or self._is_synchronized():
            return ""
        return (
            "this machine's clock may not be set yet, as nobody synchronizes it (NTP); it is believed once that is "
            f"so, or in {left_s:.0f} s"
        )
