"""The latched stop and the running episode on disk, so that a killed safety node comes back as it was."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from engram.core import errors
from engram.core.durable import seal, unseal, write_atomic
from engram.core.types import EpisodeStatus

DAMAGED = "the file of the latched stop is damaged"
RESTARTED = "restarted: the safety node was restarted while an episode ran"
LAST_COMMAND = "last_command.bin"
"""Lies beside the latch from the first command of an episode on, see :mod:`engram.runtime.last_command`."""


@dataclass(frozen=True, slots=True)
class Latched:
    """What outlives the process."""

    stopped: str = ""
    """Reason of the latched stop; empty = none."""
    episode: int = -1
    """Episode that runs; -1 = none."""
    writers: str = ""
    """Who tells of the episode, separated by spaces: another writer's episode of the same number is another one."""


class StopLatch:
    """Keeps the latch in one file, replaced atomically and fsynced before a change is acknowledged.

    Args:
        folder: of the file; None = nothing survives the process.

    A file that cannot be read, or is not what was written, counts as a stop. No file counts as none: it is there from
    the first stop or episode on. No file beside a last command counts as a stop, too: somebody has deleted it.
    """

    def __init__(self, folder: Path | None) -> None:
        self.path = folder / "stop.json" if folder is not None else None
        self._file = self._look()  # as this process has read or written it last
        self.now = self._read()
        self._before = self.now  # what the process before left
        self._released = False  # whether somebody has released the robot from that
        self.goes_on = False
        """Whether the episode that runs is the one that ran when the process before ended."""
        self.problem = ""
        """Why the newest change would not survive a restart; empty = it would."""
        self._noted: int | None = None  # episode that this process has written
        self._step = self._stamp_ns = -1  # of the newest status

    @property
    def stopped(self) -> str:
        """Reason of the latched stop; empty = none."""
        return self.now.stopped

    @property
    def unfinished(self) -> bool:
        """Whether an episode ran when the process before ended, and nothing was heard of it yet."""
        return self._before.episode >= 0 and not self._released

    def stop(self, reason: str) -> None:
        """Latch a stop; it is on disk when this returns, unless ``problem`` says why not."""
        self._write(Latched(reason, self.now.episode, self.now.writers))

    def release(self) -> None:
        """Release the stop, and whatever the process before left."""
        self._released = True
        self._write(Latched("", self.now.episode, self.now.writers))

    def saw(self, status: EpisodeStatus, writers: Callable[[], Iterable[str]]) -> str:
        """Take in what is told of the episode; returns why the robot must stay held, empty = it need not.

        Args:
            status: the newest one.
            writers: gives who may have told it. Only asked when the episode is another one than before.
        """
        reason, before = "", self._before
        if before.episode == status.episode and set(before.writers.split()) & set(writers()):
            self._before, self.goes_on = Latched(), status.running
            reason = RESTARTED if status.running and not self._released else ""
        episode = status.episode if status.running else -1
        begins = status.step == 0 and status.stamp_ns != self._stamp_ns  # on a robot it is told so once a goal
        anew = begins or status.step < self._step  # another writer may count from the same number
        self._step, self._stamp_ns = status.step, status.stamp_ns
        if episode != self._noted or anew:
            self._write(Latched(self.now.stopped, episode, " ".join(sorted(writers())) if status.running else ""))
            self._noted = episode
        return reason

    def again(self) -> str:
        """Write once more what could not be written, or is not there as it was; return what befell the file."""
        lost = self._look() != self._file
        if lost or self.problem:
            self._write(self.now)
        written = lost and not self.problem
        return f"{self.path}: somebody deleted or changed it; it was written again" if written else ""

    def _look(self) -> tuple[int, ...] | None:
        """Return by what the file is told from any other at its place; None = there is none."""
        if self.path is None:
            return None
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size

    def _read(self) -> Latched:
        if self.path is None:
            return Latched()
        try:
            state = Latched(**unseal(self.path.read_bytes()))
            if (type(state.stopped), type(state.episode), type(state.writers)) == (str, int, str):
                return state
        except (FileNotFoundError, NotADirectoryError):
            if not self.path.with_name(LAST_COMMAND).exists():
                return Latched()
        except errors.DAMAGED:
            pass
        return Latched(f"{DAMAGED}: {self.path}")

    def _write(self, state: Latched) -> None:
        self.now = state
        if self.path is None:
            return
        try:
            write_atomic(self.path, seal(asdict(state)))
        except OSError as error:
            self.problem = f"{self.path}: the latched stop would not survive a restart: {error.strerror}"
        else:
            self.problem, self._file = "", self._look()
