"""The experience store: takes transitions exactly once, in any order, and gives whole episodes back.

Why SQLite: docs/decisions/0004-experience-store.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from engram.core.errors import DAMAGED, StoreError
from engram.core.types import UNJUDGED, Transition
from engram.learning.experience.codec import DamagedRecordError, decode
from engram.learning.experience.database import Database, UnreadableStoreError
from engram.learning.experience.intake import (
    LARGEST,
    OF_EPISODE,
    OF_STREAM,
    ROW,
    Intake,
    Stream,
    TakenIdError,
    are_names,
    payload_of,
)
from engram.learning.experience.reader import ExperienceReader, experience_file
from engram.learning.experience.retention import ExperienceStoreConfig, Retention
from engram.learning.experience.store_schema import MIGRATIONS, SCHEMA, VERSION

_STREAMS_WAITING = 1024
"""Most streams of which it is remembered what is gone; a robot says it again."""


class ExperienceStore(ExperienceReader):
    """A folder with one writer; ``~`` is the home folder. ``append`` and ``commit`` are for one thread; reading is for
    any.

    Raises:
        StoreError: another process writes it, or the file is damaged or of another version.
    """

    def __init__(self, folder: Path | str, config: ExperienceStoreConfig | None = None) -> None:
        self.config = config or ExperienceStoreConfig()
        self._path, self.unreadable = experience_file(folder), {}
        self._database = Database(self._path, SCHEMA, VERSION, MIGRATIONS)
        self._retention = Retention(self._database, self.config)
        try:
            self.id = self._identity()
            self._fit()
            self._acked: dict[Stream, int] = self._known_streams()  # those that were heard of last at the end
        except BaseException:
            self._database.close()
            raise
        self._intake = Intake(self._database)
        self._gone: dict[Stream, int] = {}  # what robots say they no longer have, until it is needed

    def append(self, transitions: Sequence[Transition]) -> None:
        """Take in ``transitions`` in any order; those that are or were here already are skipped.

        Raises:
            InvalidInputError: a sequence below 1, an id that is empty or too long, or a reward that is not finite;
                nothing of ``transitions`` is stored.
            TakenIdError: another transition of the same id is stored; all others are taken in.
        """
        payloads = [payload_of(one) for one in transitions]
        taken = []
        try:
            self._database.begin()
            for one, payload in zip(transitions, payloads, strict=True):
                if not self._intake.take(one, payload, self._acked.get((one.robot_id, one.boot_id), 0)):
                    taken.append(one)
        except StoreError:
            self._forget_uncommitted()
            raise
        if taken:
            raise TakenIdError(taken)

    def gone(self, robot_id: str, boot_id: str, sequence: int) -> None:
        """Take note that the robot no longer has 1..``sequence`` of this stream: they are not waited for.

        It is believed at the :meth:`commit` at which ``sequence + 1`` is here, until one of them comes all the same.
        """
        stream = (robot_id, boot_id)
        if are_names(*stream) and self._acked.get(stream, 0) < sequence < LARGEST:
            self._gone[stream] = max(sequence, self._gone.pop(stream, 0))
            while len(self._gone) > _STREAMS_WAITING:
                del self._gone[next(iter(self._gone))]

    def commit(self) -> Mapping[Stream, int]:
        """Make what was appended durable and return the acknowledgements: per stream, 1..n are on disk or gone."""
        acked, forgotten = dict(self._acked), set[Stream]()
        try:
            if self._intake.touched or self._gone:
                self._database.begin()
            changed = {key[:2] for key in self._intake.touched} | self._intake.taken_back.keys()
            for stream in sorted(changed | (self._gone.keys() & acked.keys())):
                acked.pop(stream, None)
                acked[stream] = self._advance(stream)
            for key in self._intake.touched:
                self._register(key)
            if changed:
                self._retention.delete()
            if changed or self._gone:
                forgotten = self._retention.forget(acked)
            self._database.commit()
        except BaseException:
            self._forget_uncommitted()
            raise
        self._intake.clear()
        self._gone = {stream: last for stream, last in self._gone.items() if last > acked.get(stream, 0)}
        self._acked = {stream: last for stream, last in acked.items() if stream not in forgotten}
        return acked

    def size(self) -> int:
        """Return how many transitions are committed."""
        return int(self._read("SELECT count(*) FROM transitions")[0][0])

    def missing(self) -> int:
        """Return how many transitions never came because their robots no longer had them.

        Of a stream that may have been forgotten before, its first gap counts as none: what it lacks may have been here.
        """
        return int(self._read("SELECT coalesce(sum(missing), 0) FROM skipped")[0][0])

    def unfinished(self, newest: int = 3) -> tuple[int, list[str]]:
        """Return how many episodes are not whole although their robots went on to others, and the ``newest`` in words.

        They are listed once the rest comes, which may be late. The newest of each robot may still run.
        """
        rows = self._read(
            "SELECT CAST(s.robot_id AS BLOB), CAST(s.boot_id AS BLOB), s.episode, EXISTS (SELECT 1 FROM transitions t "
            "WHERE t.robot_id = s.robot_id AND t.boot_id = s.boot_id AND t.episode = s.episode AND ended = 1) "
            "FROM sizes s LEFT JOIN episodes e USING (robot_id, boot_id, episode) WHERE e.number IS NULL "
            "AND place NOT IN (SELECT max(place) FROM sizes GROUP BY robot_id) ORDER BY place DESC"
        )
        told = [
            f"{robot.decode(errors='replace')}/{boot.decode(errors='replace')}/{episode} "
            + ("lacks steps" if ended else "has no end")
            for robot, boot, episode, ended in rows[:newest]
        ]
        return len(rows), told

    def close(self) -> None:
        """Commit and let go of the file; may be called twice."""
        if self._intake.touched:
            self.commit()
        self._database.close()

    def _fit(self) -> None:
        """Let go of what there is more of than the configuration keeps now."""
        self._database.begin()
        if self._retention.fit():
            self._retention.delete()
        self._database.commit()

    def _known_streams(self) -> dict[Stream, int]:
        """Return up to where each stream is acknowledged; UnreadableStoreError: the file does not say.

        They are in the order in which their newest episodes began; those of which none is stored come first.
        """
        found = {}
        for robot, boot, acked in self._database.rows(
            "SELECT robot_id, boot_id, acked FROM streams LEFT JOIN sizes USING (robot_id, boot_id) "
            "GROUP BY robot_id, boot_id ORDER BY max(place)"
        ):
            if not isinstance(acked, int):
                raise UnreadableStoreError(f"{self._path}: stream {robot}/{boot} is acknowledged up to {acked!r}")
            found[robot, boot] = acked
        return found

    def _advance(self, stream: Stream) -> int:
        """Return, and store, the highest sequence of ``stream`` below which nothing is missing that may still come."""
        known = min(self._acked.get(stream, 0), self._intake.taken_back.get(stream, LARGEST) - 1)
        acked = self._skip(stream, known)
        rows = self._database.execute(
            f"SELECT sequence FROM transitions WHERE {OF_STREAM} AND sequence > ? ORDER BY sequence",
            (*stream, acked),
        )
        for (sequence,) in rows:
            if sequence != acked + 1:
                break
            acked = sequence
        self._database.execute("INSERT OR REPLACE INTO streams VALUES (?,?,?)", (*stream, acked))
        return acked

    def _skip(self, stream: Stream, acked: int) -> int:
        """Return from where to look for gaps: behind what is gone from the robot, if what follows that is here."""
        gone = self._gone.get(stream, 0)
        follows = self._database.execute(f"SELECT 1 FROM transitions WHERE {ROW}", (*stream, gone + 1)).fetchone()
        if gone <= acked or not follows:
            return acked
        (here,) = self._database.execute(
            f"SELECT count(*) FROM transitions WHERE {OF_STREAM} AND sequence > ? AND sequence <= ?",
            (*stream, acked, gone),
        ).fetchone()
        first = not self._database.execute(f"SELECT 1 FROM skipped WHERE {OF_STREAM}", stream).fetchone()
        missing = 0 if first and self._retention.may_have_forgotten(len(self._acked)) else gone - acked - here
        self._database.execute("INSERT INTO skipped VALUES (?,?,?,?,?)", (*stream, acked + 1, gone, missing))
        return gone

    def _forget_uncommitted(self) -> None:
        self._database.rollback()
        self._intake.clear()

    def _register(self, key: tuple[str, str, int]) -> None:
        """List the episode ``key`` if it is complete: steps 0..n once each, and only the last one ends it."""
        steps, distinct, last, ends, last_sequence = self._database.execute(
            "SELECT count(*), count(DISTINCT step), max(step), sum(ended), max(sequence) "
            f"FROM transitions WHERE {OF_EPISODE}",
            key,
        ).fetchone()
        if not isinstance(last, int) or not steps == distinct == last + 1 or ends != 1:  # none, or damaged
            return
        (payload,) = self._database.execute(
            f"SELECT CAST(payload AS BLOB) FROM transitions WHERE {OF_EPISODE} ORDER BY step DESC LIMIT 1", key
        ).fetchone()
        rows = self._database.rows(
            f"SELECT DISTINCT CAST(source AS BLOB) AS told FROM transitions WHERE {OF_EPISODE} ORDER BY told", key
        )
        try:
            final = decode(payload)
            sources = json.dumps([None if source is None else json.loads(source) for (source,) in rows])
        except (*DAMAGED, DamagedRecordError):
            return
        if not (final.terminated or final.truncated):
            return
        task = final.task or final.instruction
        outcome = (task, final.instruction, final.success, steps, final.policy_version, last_sequence)
        judged = final.reward_source != UNJUDGED
        listed = self._database.execute(
            "INSERT OR IGNORE INTO episodes (robot_id, boot_id, episode, task, instruction, success, steps, "
            "policy_version, last_sequence, kept, stored, sources, judged) VALUES (?,?,?,?,?,?,?,?,?,1,1,?,?)",
            (*key, *outcome, sources, judged),
        )
        if listed.rowcount:  # else it was listed before, and deleted before it was acknowledged
            texts = sum(map(len, (task, final.instruction, final.policy_version, sources)))
            self._database.execute(f"UPDATE sizes SET bytes = bytes + ? WHERE {OF_EPISODE}", (texts, *key))
            self._retention.sample(task, final.success)
