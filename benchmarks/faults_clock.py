"""A machine's clock that a trial can set, as a time server or a person sets it while a robot works.

The clock of this machine is nobody's to set. So the processes of a trial add to it what a file says: to ROS's clock and
to Python's. Clocks that never go back go on, as they do on a machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from rclpy.clock import Clock, ClockType
from rclpy.time import Time

from engram.core.durable import write_atomic

FILE = "ENGRAM_FAULTS_CLOCK"
"""Environment variable: the file that says by how much the clock was set [s]."""
READ_EVERY_S = 0.05


class SettableClock:
    """The clock of the machine on which a robot's processes run.

    Args:
        folder: of its own; made here.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder.resolve() / "set_s"
        self._set_s = 0.0
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "sitecustomize.py").write_text(f"from {__name__} import follow\n\nfollow()\n")
        self.set_by(0.0)

    def environment(self, path: str) -> dict[str, str]:
        """Return what lets processes follow this clock; ``path`` is their PYTHONPATH."""
        return {FILE: str(self._file), "PYTHONPATH": os.pathsep.join(filter(None, (str(self._file.parent), path)))}

    def set_by(self, seconds: float) -> None:
        """Set the clock ahead, or back, by ``seconds``."""
        self._set_s += seconds
        write_atomic(self._file, str(self._set_s).encode())


def follow() -> None:
    """Let the clocks of this process follow the file that the environment names."""
    file, monotonic = Path(os.environ[FILE]), time.monotonic
    read_at, ahead_s = -READ_EVERY_S, 0.0

    def ahead() -> float:
        nonlocal read_at, ahead_s
        if monotonic() - read_at > READ_EVERY_S:
            read_at, ahead_s = monotonic(), float(file.read_text())
        return ahead_s

    def later(clock: Clock, now: Callable[[Clock], Time] = Clock.now) -> Time:
        told = now(clock)
        if clock.clock_type == ClockType.STEADY_TIME:
            return told
        return Time(nanoseconds=told.nanoseconds + int(ahead() * 1e9), clock_type=told.clock_type)

    seconds, nanoseconds = time.time, time.time_ns
    Clock.now = later  # type: ignore[method-assign, assignment]
    time.time = lambda: seconds() + ahead()
    time.time_ns = lambda: nanoseconds() + int(ahead() * 1e9)
