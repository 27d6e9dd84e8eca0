"""When announced weights are sent again: their slices go out once, and some may never come.

A robot says with each episode which version drove it. While that is another one than what was announced to it, the
slices are sent again, with pauses that grow: it may also have a reason not to take them, which its diagnostics tell.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from engram.core.types import PolicyManifest
from engram.learning.weights.announcements import KEY

FIRST_S, LONGEST_S = 60.0, 3600.0
"""Pause before weights are sent again [s]: the first one, which doubles each time, and the longest."""


class Resends:
    """Not thread-safe.

    Args:
        clock: tells the time that pauses are measured in [s].

    Attributes:
        driven: robot -> version that drove its newest episode.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.driven: dict[str, str] = {}
        self._due: dict[str, str] = {}  # robot -> version that was announced to it last
        self._sent: dict[str, tuple[float, float]] = {}  # version -> when it was, and the pause until it is again
        self._others: dict[str, str] = {}  # robot -> version that has driven it since, in place of that

    def announced(self, manifest: PolicyManifest) -> None:
        """Take note that weights were sent to the robots that ``manifest`` names."""
        self._due |= dict.fromkeys(manifest.config[KEY]["robots"], manifest.version)
        self._sent = {version: sent for version, sent in self._sent.items() if version in self._due.values()}
        self._sent[manifest.version] = self._clock(), FIRST_S
        self._others = {robot: one for robot, one in self._others.items() if self._due[robot] != manifest.version}

    def drove(self, robot: str, version: str) -> None:
        """Take note that ``version`` drove the newest episode of ``robot``."""
        self.driven[robot] = version
        self._others.pop(robot, None)
        if self._due.get(robot, version) != version:
            self._others[robot] = version

    def next(self) -> tuple[str, str]:
        """Return which version is to be sent again now, and why; empty: none. Then it waits for another episode."""
        now = self._clock()
        for robot, other in self._others.items():
            version = self._due[robot]
            at, pause = self._sent[version]
            if now >= at + pause:
                self._sent[version] = now, min(2 * pause, LONGEST_S)
                self._others = {one: v for one, v in self._others.items() if self._due[one] != version}
                return version, f"{robot} drives {other}"
        return "", ""
