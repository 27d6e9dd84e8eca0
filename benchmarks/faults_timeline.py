"""Commands, motions, episodes and stops of a robot, judged in the order in which they were said. No ROS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engram.benchmarks.faults_limits import CommandJudge, MotionJudge, Violation

SETTLE_S = 1.0
"""So long a robot that is no longer allowed to move may brake and settle [s], also by the clock of its joints: a
simulation that waits for a node which was killed brakes when that is back."""
DOUBT_S = 1.0
"""So long a message waits, before it is judged, for others that were said before it and are read after it [s]."""


@dataclass(frozen=True)
class Command:
    """A command of the safety node."""

    stamp_ns: int
    positions: np.ndarray  # (n,)
    duration_s: float


@dataclass(frozen=True)
class Measured:
    """Where the arm really is."""

    stamp_ns: int
    positions: np.ndarray  # (n,)


@dataclass(frozen=True)
class Episode:
    """Which episode there is, and whether it runs."""

    number: int
    running: bool


@dataclass(frozen=True)
class Stopped:
    """Whether a stop is latched."""

    stopped: bool


Said = Command | Measured | Episode | Stopped


class Timeline:
    """Brings what was said into order, as a reader that was kept waiting reads it in any order, and judges it.

    Args:
        commands: judge of commands.
        motion: judge of motions.
    """

    def __init__(self, commands: CommandJudge, motion: MotionJudge) -> None:
        self._commands, self._motion = commands, motion
        self._waiting: list[tuple[int, float, Said]] = []  # said [ns], read [s], what
        self._running, self._stopped, self._episode = False, False, -1
        self._allowed_until_ns = self._driven_until_ns = 0
        self._told: np.ndarray | None = None  # (n,) positions of the last command
        self._measured_ns = self._free_ns = 0  # stamps of the joints: newest, and when the robot was last free to move

    def add(self, said_ns: int, read_s: float, what: Said) -> None:
        """Take in ``what`` was said at ``said_ns`` on the writers' clock and read at ``read_s`` on the reader's."""
        self._waiting.append((said_ns, read_s, what))

    def judge(self, now_s: float) -> list[tuple[float, Violation]]:
        """Return the limits that were not kept, each with the time at which that was read [s]."""
        ripe = sorted((one for one in self._waiting if now_s - one[1] >= DOUBT_S), key=lambda one: one[0])
        self._waiting = [one for one in self._waiting if now_s - one[1] < DOUBT_S]
        episodes = [(at_ns, one.number) for at_ns, _, one in (*ripe, *self._waiting) if isinstance(one, Episode)]
        found = []
        for said_ns, read_s, what in ripe:
            broken = self._judged(said_ns, what)
            # a new episode puts a simulated arm to its start, and its status may be said after its joints
            soon = said_ns + DOUBT_S * 1e9
            if not any(said_ns <= at_ns < soon and number > self._episode for at_ns, number in episodes):
                found += [(read_s, one) for one in broken]
        return found

    def _judged(self, said_ns: int, what: Said) -> list[Violation]:
        if isinstance(what, Command):
            broken = self._commands.command(what.stamp_ns, what.positions, what.duration_s)
            # a hold where the arm is measured is one, too: nobody drives. Where it was told to be already it may be
            # held until the end of the goal, or a stop, has come through: to a node that was suspended, seconds later
            held = self._stopped or (self._told is not None and np.array_equal(self._told, what.positions))
            self._told = what.positions
            if not self._running and not held and said_ns >= self._driven_until_ns:
                broken.append(Violation("command_not_allowed", f"for the step at {what.stamp_ns / 1e9:.3f} s"))
            return broken
        free = self._running and not self._stopped
        if isinstance(what, Measured):
            self._measured_ns = what.stamp_ns
            settles = 0 <= what.stamp_ns - self._free_ns < SETTLE_S * 1e9
            allowed = free or settles or said_ns < self._allowed_until_ns
            return self._motion.measured(what.stamp_ns, what.positions, allowed=allowed)
        if free:
            self._allowed_until_ns, self._free_ns = said_ns + round(SETTLE_S * 1e9), self._measured_ns
        if self._running:
            self._driven_until_ns = said_ns + round(SETTLE_S * 1e9)
        if isinstance(what, Stopped):
            self._stopped = what.stopped
            return []
        if what.number != self._episode or not self._running:
            self._commands.forget()
            self._motion.forget()
        self._running, self._episode = what.running, what.number
        return []
