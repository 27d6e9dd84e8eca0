"""What the learner keeps: transitions on disk, exactly once, whole episodes out.

SQLite, because what is asked for is what it does: (robot, boot, sequence) as primary key is exactly once, a commit is
atomic and durable, and readers go on beside the writer. Docs: docs/decisions/experience-store.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engram.core.contracts import ExperienceStore
from engram.core.errors import InvalidInputError, StoreError
from engram.core.types import Transition
from engram.learning.experience.codec import DamagedRecordError, decode, encode
from engram.learning.experience.database import Database

VERSION = 1
SCHEMA = """
CREATE TABLE streams (robot_id TEXT, boot_id TEXT, acked INTEGER, PRIMARY KEY (robot_id, boot_id)) WITHOUT ROWID;
CREATE TABLE transitions (
    robot_id TEXT, boot_id TEXT, sequence INTEGER, episode INTEGER, step INTEGER, ended INTEGER,
    reward REAL, payload BLOB,
    PRIMARY KEY (robot_id, boot_id, sequence));
CREATE INDEX by_episode ON transitions (robot_id, boot_id, episode, step);
CREATE TABLE episodes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, robot_id TEXT, boot_id TEXT, episode INTEGER, task TEXT,
    instruction TEXT, success INTEGER, steps INTEGER, total_reward REAL, policy_version TEXT,
    last_sequence INTEGER, kept INTEGER, stored INTEGER, UNIQUE (robot_id, boot_id, episode));
CREATE TABLE reservoirs (task TEXT, success INTEGER, met INTEGER, PRIMARY KEY (task, success)) WITHOUT ROWID
"""

Stream = tuple[str, str]


@dataclass(frozen=True)
class ExperienceStoreConfig:
    """What is kept."""

    episodes_per_task: int = 0
    """Episodes kept a task, and the same number of failed ones: a uniform sample of all there were. 0 = all."""
    seed: int = 0
    """Of the sample."""


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


class SqliteExperienceStore(ExperienceStore):
    """A folder with one writer. ``append`` and ``commit`` are for one thread; reading is for any.

    Raises:
        StoreError: another process writes it, or the file is damaged or of another version.
    """

    def __init__(self, folder: Path | str, config: ExperienceStoreConfig | None = None) -> None:
        self.config = config or ExperienceStoreConfig()
        self._database = Database(Path(folder) / "experience.sqlite", SCHEMA, VERSION)
        rows = self._database.execute("SELECT robot_id, boot_id, acked FROM streams")
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
            key = (one.robot_id, one.boot_id, one.sequence)
            values = (*key, one.episode, one.step, one.terminated or one.truncated, float(one.reward), payload)
            added = self._database.execute("INSERT OR IGNORE INTO transitions VALUES (?,?,?,?,?,?,?,?)", values)
            if added.rowcount:
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
                self._delete_dropped()
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
        columns = "number, robot_id, boot_id, episode, task, instruction, success, steps, total_reward, policy_version"
        with closing(self._database.reader()) as reader:
            rows = reader.execute(f"SELECT {columns} FROM episodes WHERE kept AND number > ? ORDER BY number", (after,))
            names = columns.split(", ")
            found = [dict(zip(names, row, strict=True)) for row in rows]
            return [EpisodeInfo(**one | {"success": bool(one["success"])}) for one in found]

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
        self._database.execute(
            "INSERT OR IGNORE INTO episodes (robot_id, boot_id, episode, task, instruction, success, steps, "
            "total_reward, policy_version, last_sequence, kept, stored) VALUES (?,?,?,?,?,?,?,?,?,?,1,1)",
            (*key, final.task, final.instruction, final.success, steps, total, final.policy_version, last_sequence),
        )
        if self.config.episodes_per_task:
            self._sample(final.task, final.success)

    def _sample(self, task: str, success: bool) -> None:
        """Keep a uniform sample of the episodes of ``task`` (reservoir, Vitter's algorithm R)."""
        group = (task, success)
        row = self._database.execute("SELECT met FROM reservoirs WHERE task = ? AND success = ?", group).fetchone()
        met = (row[0] if row else 0) + 1
        self._database.execute("INSERT OR REPLACE INTO reservoirs VALUES (?,?,?)", (*group, met))
        kept = self._database.execute(
            "SELECT number FROM episodes WHERE task = ? AND success = ? AND kept ORDER BY number", group
        ).fetchall()
        size = self.config.episodes_per_task
        if len(kept) <= size:
            return
        rng = np.random.default_rng((self.config.seed, zlib.crc32(task.encode()), int(success), met))
        place = int(rng.integers(met))
        victim = kept[place][0] if place < size else kept[-1][0]  # the last one is the newcomer
        self._database.execute("UPDATE episodes SET kept = 0 WHERE number = ?", (victim,))

    def _delete_dropped(self) -> None:
        """Delete the transitions of dropped episodes whose sequences are acknowledged: they cannot come again."""
        rows = self._database.execute(
            "SELECT e.number, e.robot_id, e.boot_id, e.episode FROM episodes e "
            "JOIN streams s USING (robot_id, boot_id) WHERE e.stored AND NOT e.kept AND e.last_sequence <= s.acked"
        ).fetchall()
        for number, *key in rows:
            self._database.execute("DELETE FROM transitions WHERE robot_id = ? AND boot_id = ? AND episode = ?", key)
            self._database.execute("UPDATE episodes SET stored = 0 WHERE number = ?", (number,))
