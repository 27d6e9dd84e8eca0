"""The experience store: takes transitions exactly once, in any order, and gives whole episodes back.

Why SQLite: docs/decisions/0004-experience-store.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from engram.core.errors import InvalidInputError, StoreError
from engram.core.types import ActionSource, Transition
from engram.learning.experience.codec import DamagedRecordError, decode, encode, source_from
from engram.learning.experience.database import Database
from engram.learning.experience.retention import ExperienceStoreConfig, Retention

VERSION = 2
_SIZES = """
CREATE TABLE sizes (
    place INTEGER PRIMARY KEY AUTOINCREMENT, robot_id TEXT, boot_id TEXT, episode INTEGER, last_sequence INTEGER,
    bytes INTEGER, UNIQUE (robot_id, boot_id, episode))
"""
SCHEMA = f"""
CREATE TABLE streams (robot_id TEXT, boot_id TEXT, acked INTEGER, PRIMARY KEY (robot_id, boot_id)) WITHOUT ROWID;
CREATE TABLE transitions (
    robot_id TEXT, boot_id TEXT, sequence INTEGER, episode INTEGER, step INTEGER, ended INTEGER,
    reward REAL, payload BLOB, source TEXT,
    PRIMARY KEY (robot_id, boot_id, sequence));
CREATE INDEX by_episode ON transitions (robot_id, boot_id, episode, step);
CREATE TABLE episodes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, robot_id TEXT, boot_id TEXT, episode INTEGER, task TEXT,
    instruction TEXT, success INTEGER, steps INTEGER, total_reward REAL, policy_version TEXT,
    last_sequence INTEGER, kept INTEGER, stored INTEGER, sources TEXT, UNIQUE (robot_id, boot_id, episode));
CREATE TABLE reservoirs (task TEXT, success INTEGER, met INTEGER, PRIMARY KEY (task, success)) WITHOUT ROWID;
{_SIZES}
"""
MIGRATIONS = {
    1: f"""
ALTER TABLE transitions ADD COLUMN source TEXT;
ALTER TABLE episodes ADD COLUMN sources TEXT;
{_SIZES};
INSERT INTO sizes (robot_id, boot_id, episode, last_sequence, bytes)
    SELECT robot_id, boot_id, episode, max(sequence), sum(length(payload)) FROM transitions
    GROUP BY robot_id, boot_id, episode ORDER BY min(rowid)
"""
}
"""Version that a file has -> what brings it to the next. Version 1 did not know whose actions it held: its episodes
stay, of an unknown source, and no learner learns from them."""

Stream = tuple[str, str]


@dataclass(frozen=True)
class EpisodeInfo:
    """One complete stored episode; numbers grow and are never used twice."""

    number: int
    robot_id: str
    boot_id: str
    episode: int
    task: str
    instruction: str
    success: bool
    steps: int
    total_reward: float
    policy_version: str
    sources: tuple[ActionSource, ...]
    """Each different source that its steps have."""


class ExperienceStore:
    """A folder with one writer; ``~`` is the home folder. ``append`` and ``commit`` are for one thread; reading is for
    any.

    Raises:
        StoreError: another process writes it, or the file is damaged or of another version.
    """

    def __init__(self, folder: Path | str, config: ExperienceStoreConfig | None = None) -> None:
        self.config = config or ExperienceStoreConfig()
        self._database = Database(Path(folder).expanduser() / "experience.sqlite", SCHEMA, VERSION, MIGRATIONS)
        rows = self._database.execute("SELECT robot_id, boot_id, acked FROM streams")
        self._retention = Retention(self._database, self.config)
        self._acked: dict[Stream, int] = {(robot, boot): acked for robot, boot, acked in rows}
        self._touched: dict[tuple[str, str, int], None] = {}

    def append(self, transitions: Sequence[Transition]) -> None:
        """Take in ``transitions`` in any order; those that are or were here already are skipped.

        Raises:
            InvalidInputError: a sequence below 1 or an empty id; nothing of ``transitions`` is stored.
        """
        payloads = []
        for one in transitions:
            if one.sequence < 1 or not one.robot_id or not one.boot_id:
                raise InvalidInputError(
                    f"Transition {one.robot_id!r}/{one.boot_id!r}/{one.sequence}: expected two names and a sequence "
                    "of 1 or more"
                )
            payloads.append(encode(one))
        self._database.begin()
        for one, payload in zip(transitions, payloads, strict=True):
            if one.sequence <= self._acked.get((one.robot_id, one.boot_id), 0):
                continue
            if self._insert(one, payload):
                self._touched[one.robot_id, one.boot_id, one.episode] = None

    def commit(self) -> Mapping[Stream, int]:
        """Make what was appended durable and return the acknowledgements: per stream, 1..n are on disk."""
        acked = dict(self._acked)
        try:
            for stream in dict.fromkeys(key[:2] for key in self._touched):
                acked[stream] = self._advance(stream)
            for key in self._touched:
                self._register(key)
            if self._touched:
                self._retention.delete()
            self._database.commit()
        except StoreError:
            self._database.rollback()
            raise
        finally:
            self._touched.clear()
        self._acked = acked
        return dict(acked)

    def episodes(self) -> Iterator[Sequence[Transition]]:
        """Yield complete committed episodes, oldest first; raises StoreError at a damaged one."""
        for info in self.catalogue():
            transitions = self.episode(info.number)
            if transitions:
                yield transitions

    def catalogue(self, after: int = 0) -> list[EpisodeInfo]:
        """Return the complete committed episodes with a number above ``after``, oldest first."""
        columns = (
            "number, robot_id, boot_id, episode, task, instruction, success, steps, total_reward, policy_version, "
            "sources"
        )
        with closing(self._database.reader()) as reader:
            rows = reader.execute(f"SELECT {columns} FROM episodes WHERE kept AND number > ? ORDER BY number", (after,))
            names = columns.split(", ")
            found = [dict(zip(names, row, strict=True)) for row in rows]
        return [
            EpisodeInfo(**one | {"success": bool(one["success"]), "sources": _sources(one["sources"])}) for one in found
        ]

    def episode(self, number: int) -> tuple[Transition, ...]:
        """Return episode ``number`` in the order of its steps; empty when it was dropped meanwhile."""
        with closing(self._database.reader()) as reader:
            rows = reader.execute(
                "SELECT t.sequence, t.payload FROM transitions t JOIN episodes e USING (robot_id, boot_id, episode) "
                "WHERE e.number = ? AND e.kept ORDER BY t.step",
                (number,),
            ).fetchall()
        found = []
        for sequence, payload in rows:
            try:
                found.append(decode(payload))
            except DamagedRecordError as error:
                raise StoreError(f"{self._database.path}: episode {number}, sequence {sequence}: {error}") from None
        return tuple(found)

    def size(self) -> int:
        """Return how many transitions are committed."""
        with closing(self._database.reader()) as reader:
            return int(reader.execute("SELECT count(*) FROM transitions").fetchone()[0])

    def close(self) -> None:
        """Commit and let go of the file; may be called twice."""
        if self._touched:
            self.commit()
        self._database.close()

    def _insert(self, one: Transition, payload: bytes) -> bool:
        """Add a row; return whether it is new."""
        stream = (one.robot_id, one.boot_id)
        ended = one.terminated or one.truncated
        source = json.dumps(asdict(one.source), sort_keys=True)
        values = (*stream, one.sequence, one.episode, one.step, ended, float(one.reward), payload, source)
        added = self._database.execute("INSERT OR IGNORE INTO transitions VALUES (?,?,?,?,?,?,?,?,?)", values)
        if not added.rowcount:
            return False
        self._database.execute(
            "INSERT INTO sizes (robot_id, boot_id, episode, last_sequence, bytes) VALUES (?,?,?,?,?) "
            "ON CONFLICT (robot_id, boot_id, episode) DO UPDATE SET bytes = bytes + excluded.bytes, "
            "last_sequence = max(last_sequence, excluded.last_sequence)",
            (*stream, one.episode, one.sequence, len(payload)),
        )
        return True

    def _advance(self, stream: Stream) -> int:
        """Return, and store, the highest sequence of ``stream`` with no gap below it."""
        acked = self._acked.get(stream, 0)
        rows = self._database.execute(
            "SELECT sequence FROM transitions WHERE robot_id = ? AND boot_id = ? AND sequence > ? ORDER BY sequence",
            (*stream, acked),
        )
        for (sequence,) in rows:
            if sequence != acked + 1:
                break
            acked = sequence
        self._database.execute("INSERT OR REPLACE INTO streams VALUES (?,?,?)", (*stream, acked))
        return acked

    def _register(self, key: tuple[str, str, int]) -> None:
        """List the episode ``key`` if it is complete: steps 0..n once each, and only the last one ends it."""
        where = "robot_id = ? AND boot_id = ? AND episode = ?"
        steps, distinct, last, ends, total, last_sequence = self._database.execute(
            "SELECT count(*), count(DISTINCT step), max(step), sum(ended), sum(reward), max(sequence) "
            f"FROM transitions WHERE {where}",
            key,
        ).fetchone()
        if not steps == distinct == last + 1 or ends != 1:
            return
        (payload,) = self._database.execute(
            f"SELECT payload FROM transitions WHERE {where} ORDER BY step DESC LIMIT 1", key
        ).fetchone()
        final = decode(payload)
        if not (final.terminated or final.truncated):
            return
        rows = self._database.execute(f"SELECT DISTINCT source FROM transitions WHERE {where} ORDER BY source", key)
        sources = json.dumps([None if source is None else json.loads(source) for (source,) in rows])
        outcome = (final.task, final.instruction, final.success, steps, total, final.policy_version, last_sequence)
        self._database.execute(
            "INSERT OR IGNORE INTO episodes (robot_id, boot_id, episode, task, instruction, success, steps, "
            "total_reward, policy_version, last_sequence, kept, stored, sources) VALUES (?,?,?,?,?,?,?,?,?,?,1,1,?)",
            (*key, *outcome, sources),
        )
        self._retention.sample(final.task, final.success)


def _sources(text: str | None) -> tuple[ActionSource, ...]:
    """Return the sources of an episode; rows of before there were any are of an unknown one."""
    found = [None] if text is None else json.loads(text)
    return tuple(ActionSource() if one is None else source_from(one) for one in found)
