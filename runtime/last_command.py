"""The state of motion of the last command on disk, so that a killed safety node comes back and brakes from it."""

from __future__ import annotations

import errno
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engram.runtime.stop_latch import LAST_COMMAND, Latched

_HEAD = struct.Struct("<Iqqd")
"""Of a record: how many numbers its state has, episode, stamp and time."""
_CHECKSUM = struct.Struct("<I")
_PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""No link is followed, and nothing in the file's place makes the node wait."""
_LONGEST = 1 << 16
"""The most bytes that are read."""


@dataclass(frozen=True, slots=True)
class GivenCommand:
    """A command that was given, by what the next one depends on."""

    episode: int
    stamp_ns: int  # of its control step
    at_s: float  # when it was given, by a clock that runs on over restarts
    state: np.ndarray  # (k,) float64, see SafetyFilter.state


class LastCommandFile:
    """Keeps the last command of the episode that runs.

    It is written at every command, in place and without fsync: what is written survives the process, not a power cut.
    A record that is torn, damaged, of another robot or of another episode counts as none.

    Args:
        folder: of the file; None = nothing survives the process.
        joints: names of the robot's joints.
        control_dt_s: length of a control step [s].
    """

    def __init__(self, folder: Path | None, joints: tuple[str, ...], control_dt_s: float) -> None:
        self.path = folder / LAST_COMMAND if folder is not None else None
        self.problem = ""
        """Why the newest command would not survive a restart; empty = it would."""
        self._robot = f"{' '.join(joints)} {control_dt_s}"
        self._file = -1

    def read(self, running: Latched) -> GivenCommand | None:
        """Return the last command of the episode that is ``running`` by the latch; None = it is not known."""
        if self.path is None:
            return None
        try:
            file = os.open(self.path, os.O_RDONLY | _PLAIN)
            try:
                data = os.read(file, _LONGEST)
            finally:
                os.close(file)
        except OSError:
            return None
        if len(data) < _CHECKSUM.size + _HEAD.size:
            return None
        count, episode, stamp_ns, at_s = _HEAD.unpack_from(data, _CHECKSUM.size)
        record = data[_CHECKSUM.size :][: _HEAD.size + 8 * count]
        if _CHECKSUM.unpack_from(data) != (self._checksum(record, running),) or episode != running.episode:
            return None
        return GivenCommand(episode, stamp_ns, at_s, np.frombuffer(record, "<f8", offset=_HEAD.size))

    def write(self, command: GivenCommand, running: Latched) -> None:
        """Keep ``command``, where it is one of the episode that is ``running``; ``problem`` says why that failed."""
        if self.path is None or command.episode != running.episode:
            return
        state = command.state
        record = _HEAD.pack(len(state), command.episode, command.stamp_ns, command.at_s) + state.astype("<f8").tobytes()
        try:
            self._put(self.path, _CHECKSUM.pack(self._checksum(record, running)) + record)
        except OSError as error:
            self.close()
            self.problem = f"{self.path}: after a restart in motion the arm would not brake from it: {error.strerror}"
        else:
            self.problem = ""

    def close(self) -> None:
        """Close the file; the next command opens it again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _put(self, path: Path, data: bytes) -> None:
        if self._file >= 0 and not os.fstat(self._file).st_nlink:  # somebody has deleted it
            self.close()
        if self._file < 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | _PLAIN, 0o644)
        if os.pwrite(self._file, data, 0) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _checksum(self, record: bytes, running: Latched) -> int:
        """Return the checksum of ``record``, which fits for this robot and those who tell of this episode alone."""
        return zlib.crc32(record, zlib.crc32(f"{self._robot} {running.writers}".encode()))
