"""What the experience store holds, for those who only read: whole episodes, beside the one process that writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engram.core.errors import DAMAGED, StoreError
from engram.core.types import ActionSource, Transition
from engram.learning.experience.codec import DamagedRecordError, decode, source_from
from engram.learning.experience.database import read
from engram.learning.experience.store_schema import VERSION


@dataclass(frozen=True)
class EpisodeInfo:
    """One complete stored episode; numbers grow and are never used twice."""

    number: int
    robot_id: str
    boot_id: str
    episode: int
    task: str
    """Its name, or its words where no task is registered, as on a robot."""
    instruction: str
    success: bool
    steps: int
    policy_version: str
    sources: tuple[ActionSource, ...]
    """Each different source that its steps have."""
    judged: bool = True
    """Whether somebody says how it ended. An episode that was called off, or not seen, is no failure."""


class ExperienceReader:
    """What is stored in a folder, beside the one process that writes it; ``~`` is the home folder.

    Attributes:
        id: tells this store from any other: the numbers of its episodes mean nothing elsewhere.
        unreadable: number of each episode that was passed over, as its entry in the list is damaged, and why.

    Raises:
        StoreError: nothing is stored there, or the file is damaged or of another version.
    """

    id: str
    unreadable: dict[int, str]

    def __init__(self, folder: Path | str) -> None:
        self._path, self.unreadable = experience_file(folder), {}
        if not self._path.is_file():
            raise StoreError(f"{self._path}: no experience is stored there")
        ((version,),) = self._read("PRAGMA user_version")
        if version != VERSION:
            older = "; the node or command that writes it brings it to that" if version < VERSION else ""
            raise StoreError(f"{self._path}: schema version {version}, this version reads {VERSION}{older}")
        self.id = self._identity()

    def _identity(self) -> str:
        found = self._read("SELECT id FROM identity")
        return str(found[0][0]) if found else ""

    def _read(self, statement: str, values: Sequence[Any] = ()) -> list[tuple]:
        return read(self._path, statement, values)

    def episodes(self) -> Iterator[Sequence[Transition]]:
        """Yield complete committed episodes, oldest first; raises StoreError at a damaged one."""
        for info in self.catalogue():
            transitions = self.episode(info.number)
            if transitions:
                yield transitions

    def catalogue(self, after: int = 0) -> list[EpisodeInfo]:
        """Return the complete committed episodes with a number above ``after``, oldest first.

        One whose entry is damaged is passed over, see ``unreadable``.
        """
        columns = ", ".join(f"CAST({name} AS BLOB)" if kind is str else name for name, kind in COLUMNS.items())
        found = []
        for row in self._read(f"SELECT {columns} FROM episodes WHERE kept AND number > ? ORDER BY number", (after,)):
            try:
                found.append(_info(row))
            except DAMAGED as error:
                self.unreadable[row[0]] = f"{self._path}: the entry of episode {row[0]} is damaged: {error}"
        return found

    def robots(self, newest: int = 0) -> list[str]:
        """Return the robot_id of each robot of which there are whole episodes, or of the ``newest``, by their names."""
        rows = self._read(
            "SELECT DISTINCT CAST(robot_id AS BLOB) FROM "
            "(SELECT robot_id FROM episodes WHERE kept ORDER BY number DESC LIMIT ?)",
            (newest or -1,),
        )
        return sorted(name.decode(errors="replace") for (name,) in rows)

    def episode(self, number: int) -> tuple[Transition, ...]:
        """Return episode ``number`` in the order of its steps; empty when it was dropped meanwhile."""
        rows = self._read(
            "SELECT t.sequence, CAST(t.payload AS BLOB) FROM transitions t "
            "JOIN episodes e USING (robot_id, boot_id, episode) WHERE e.number = ? AND e.kept ORDER BY t.step",
            (number,),
        )
        found = []
        for sequence, payload in rows:
            try:
                found.append(decode(payload))
            except DamagedRecordError as error:
                raise StoreError(f"{self._path}: episode {number}, sequence {sequence}: {error}") from None
        return tuple(found)


def experience_file(folder: Path | str) -> Path:
    """Return the file of the experience store in ``folder``."""
    return Path(folder).expanduser() / "experience.sqlite"


def stored_id(folder: Path | str) -> str:
    """Return the id of the experience store in ``folder``; empty: there is none.

    Raises:
        StoreError: it cannot be read.
    """
    return ExperienceReader(folder).id if experience_file(folder).is_file() else ""


COLUMNS = {
    **{"number": int, "robot_id": str, "boot_id": str, "episode": int, "task": str, "instruction": str},
    **{"success": bool, "steps": int, "policy_version": str, "sources": str, "judged": bool},
}
"""Of the list of episodes, with what they hold."""


def _info(row: Sequence[Any]) -> EpisodeInfo:
    """Return what a row of ``COLUMNS`` says, texts as bytes; raises one of ``DAMAGED``."""
    values: dict[str, Any] = {}
    for (name, kind), value in zip(COLUMNS.items(), row, strict=True):
        if kind is str:
            values[name] = None if name == "sources" and value is None else value.decode()
        elif not isinstance(value, int) or (kind is bool and value not in (0, 1)):
            raise ValueError(f"{name} is {value!r}, expected a {kind.__name__}")
        else:
            values[name] = kind(value)
    return EpisodeInfo(**values | {"sources": _sources(values["sources"])})


def _sources(text: str | None) -> tuple[ActionSource, ...]:
    """Return the sources of an episode; rows of before there were any are of an unknown one."""
    found = [None] if text is None else list(json.loads(text))
    return tuple(ActionSource() if one is None else source_from(one) for one in found)
