"""The robot's end of the experience link: transitions stay on its disk until the learner has acknowledged them."""

from __future__ import annotations

import math
import shutil
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from engram.core.arrays import positive_int
from engram.core.errors import InvalidInputError, StoreError
from engram.core.types import Transition
from engram.learning.experience.codec import DamagedRecordError, decode, encode
from engram.learning.experience.database import Database, UnreadableStoreError, set_aside
from engram.learning.experience.spool_stream import Gone, Stream

FILE = "spool.sqlite"
SIZE = "coalesce(sum(length(payload)), 0)"
"""Of transitions, in bytes; SQLite tells it without reading them."""
MB = 1e6
LAST_PLACE = 2**62
"""No spool gets that far: a number beyond it is damaged."""
VERSION = 3
SCHEMA = """
CREATE TABLE spool (place INTEGER PRIMARY KEY, payload BLOB);
CREATE TABLE streams (base INTEGER PRIMARY KEY, boot_id TEXT, acknowledged INTEGER);
CREATE TABLE state (name TEXT PRIMARY KEY, value) WITHOUT ROWID
"""
MIGRATIONS = {
    1: "",
    2: """
CREATE TABLE streams (base INTEGER PRIMARY KEY, boot_id TEXT, acknowledged INTEGER);
INSERT INTO streams SELECT 0, b.value, a.value FROM state b, state a
    WHERE b.name = 'boot_id' AND a.name = 'acknowledged';
DELETE FROM state WHERE name IN ('boot_id', 'acknowledged');
ALTER TABLE spool RENAME COLUMN sequence TO place
""",
}
"""Version 1 did not say whose actions a transition holds: such transitions are still sent, of an unknown source.
Version 2 had one stream, whose boot id outlived restarts."""


@dataclass(frozen=True)
class SpoolConfig:
    """Bounds of the spool and pace of repeating."""

    capacity: int = 200_000
    """Most transitions on disk; when full, new ones are dropped and counted (two 128 px images: about 50 kB each)."""
    max_mb: float = 16_384.0
    """Most that wait on disk [MB], whatever their pictures' size; beyond it, too, new ones are dropped and counted."""
    free_mb: float = 1024.0
    """So much of its disk is left free [MB]: the latch of a stop, and the memory, may lie on it as well."""
    resend_s: float = 2.0
    """Without progress of the acknowledgement for this long, what is under way is sent again."""
    window: int = 200_000
    """Most transitions of a stream that are under way without an acknowledgement. A publisher that repairs what a
    network loses keeps only its newest messages: more than those would push out what is still being repaired."""
    stalled_s: float = 30.0
    """Experience that waits for so long without any acknowledgement is a problem [s]."""

    def __post_init__(self) -> None:
        positive_int("SpoolConfig.capacity", self.capacity)
        positive_int("SpoolConfig.window", self.window)
        for name in ("max_mb", "free_mb"):
            if not 0.0 <= (value := getattr(self, name)) < math.inf:
                raise InvalidInputError(f"SpoolConfig.{name}: {value}, expected a finite number from 0 on")


def open_spool(folder: Path, robot_id: str, config: SpoolConfig | None = None) -> tuple[Spool, str]:
    """Return the spool in ``folder``; one that cannot be read is set aside, and a new one begins.

    The text says why, and where the old one lies now; empty: it could be read.

    Raises:
        StoreLockedError: another process has it.
        StoreError: the disk refuses it.
    """
    try:
        return Spool(folder, robot_id, config), ""
    except UnreadableStoreError as error:
        try:
            aside = set_aside(folder, (FILE, f"{FILE}-wal", f"{FILE}-shm"))
        except OSError as stays:
            raise StoreError(f"{error}; it cannot be moved aside: {stays}") from error
        return Spool(folder, robot_id, config), f"{error}; it lies in {aside} now, and what waited in it is not sent"


class Spool:
    """Transitions in order, numbered 1, 2, 3, ... under a boot id; each opening begins a stream with a new one.

    What an earlier opening left is sent under the ids that it was given. So a copy of a spool, or one that was restored
    from a backup, never gives an id to a second transition. A number is given only to what was written, so a failed
    :meth:`add` leaves no gap. Only committed transitions are handed out.

    Raises:
        StoreLockedError: another process has it.
        UnreadableStoreError: its file is damaged, or of another version.
        StoreError: the disk refuses it.
    """

    def __init__(self, folder: Path | str, robot_id: str, config: SpoolConfig | None = None) -> None:
        if not robot_id:
            raise InvalidInputError("Spool.robot_id: empty, expected the robot's name")
        self.robot_id = robot_id
        self.config = config or SpoolConfig()
        self._database = Database(Path(folder) / FILE, SCHEMA, VERSION, MIGRATIONS)
        try:
            self._dropped = self._dropped_on_disk = self._counted("dropped")
            self._count()
            self._streams = self._restore()
        except StoreError:
            self._database.close()
            raise
        self._own = self._streams[-1]
        self.boot_id = self._own.boot_id
        self._newest = 0  # sequence in the own stream of the last one added
        self._turn = 0  # which stream sends first
        self._gone: list[Gone] = []
        self.unreadable = 0

    def add(self, transition: Transition) -> Transition | None:
        """Number and keep ``transition``; None if the spool is full. Durable after the next :meth:`commit`.

        Raises:
            InvalidInputError: a value cannot be stored. No number is used up.
            StoreError: the disk refuses it. No number is used up, and :attr:`dropped` counts what was lost.
        """
        if self.full():  # dropping the oldest would lose what the learner may wait for
            self._dropped += 1
            return None
        numbered = replace(transition, robot_id=self.robot_id, boot_id=self.boot_id, sequence=self._newest + 1)
        payload = encode(numbered)
        try:
            self._database.begin()
            self._database.execute("INSERT OR IGNORE INTO streams VALUES (?,?,0)", (self._own.base, self.boot_id))
            self._database.execute("INSERT INTO spool VALUES (?,?)", (self._own.base + numbered.sequence, payload))
        except StoreError:
            self._dropped += 1
            self._forget_uncommitted()
            raise
        self._newest += 1
        self._waiting += 1
        self._bytes += len(payload)
        return numbered

    def full(self) -> str:
        """Say why no more is kept; empty: there is room."""
        config = self.config
        if len(self) >= config.capacity:
            return f"full: {len(self)} transitions wait"
        if self._bytes >= config.max_mb * MB:
            return f"full: {self._bytes / MB:.0f} MB wait, of at most {config.max_mb:g}"
        try:
            free = shutil.disk_usage(self._database.path.parent).free + self._database.free_bytes()
        except OSError:  # the folder is gone: the next commit says so
            return ""
        if free < config.free_mb * MB:
            return f"full: {free / MB:.0f} MB of its disk are free, and {config.free_mb:g} are to be"
        return ""

    def commit(self) -> int:
        """Make what was added durable; return the newest durable sequence of this opening.

        Raises:
            StoreError: the disk refuses it. What was not durable is lost and counted, and its numbers are given anew.
        """
        try:
            if self._dropped != self._dropped_on_disk:
                self._database.begin()
                self._put_state("dropped", self._dropped)
            self._database.commit()
        except StoreError:
            self._forget_uncommitted()
            raise
        self._dropped_on_disk = self._dropped
        self._own.last = self._newest
        return self.durable

    def due(self, now_s: float, limit: int) -> list[Transition]:
        """Return at most ``limit`` transitions to send now, at monotonic time ``now_s``; of each stream oldest first.

        Each is due once, and again when the acknowledgement of its stream has not moved for ``resend_s``. The streams
        take turns, so that one that nobody acknowledges does not hold up the others; none is more than ``window`` ahead
        of its acknowledgement. A transition that cannot be read any more is deleted and counted in :attr:`unreadable`.
        """
        found: list[Transition] = []
        turn = self._turn % len(self._streams)
        for stream in self._streams[turn:] + self._streams[:turn]:
            if len(found) < limit:
                found += self._due_of(stream, now_s, limit - len(found))
        self._turn = turn + 1
        return found

    def gone(self) -> list[Gone]:
        """Return what to say before the transitions of the last :meth:`due` are sent."""
        gone, self._gone = self._gone, []
        return gone

    def acknowledge(self, sequence: int, now_s: float, boot_id: str = "") -> int:
        """Forget 1..``sequence`` of stream ``boot_id``, which the learner has on disk; return how many went.

        An older receipt is no error, nor is one for a stream that is done. Default: the stream of this opening.

        Raises:
            InvalidInputError: the receipt is for more than there ever was.
        """
        boot_id = boot_id or self.boot_id
        stream = next((one for one in self._streams if one.boot_id == boot_id), None)
        if stream is None or sequence <= stream.acknowledged:
            return 0
        if sequence > stream.last:
            raise InvalidInputError(
                f"ack {sequence} of {self.robot_id}/{boot_id}: only 1..{stream.last} exist; is another robot using "
                "this name?"
            )
        self.commit()
        try:
            gone = self._delete(stream, sequence)
        except StoreError:
            self._database.rollback()
            raise
        stream.acknowledge(sequence, now_s)
        if stream is not self._own and self._oldest(stream) > stream.last:
            self._streams.remove(stream)
        return gone

    def stalled(self, now_s: float) -> str:
        """Say what has waited for ``stalled_s`` without an acknowledgement; empty = nothing has.

        Call it regularly: it keeps the time.
        """
        longest = max((one.wait(now_s) for one in self._streams), key=lambda wait: wait.seconds)
        if longest.seconds < self.config.stalled_s:
            return ""
        return (
            f"{len(self)} transitions wait; for {longest.seconds:.0f} s nothing was acknowledged from sequence "
            f"{longest.sequence} of boot {longest.boot_id} on"
        )

    @property
    def durable(self) -> int:
        """The newest durable sequence of this opening."""
        return self._own.last

    @property
    def next_sequence(self) -> int:
        """The number that the next transition of this opening will get."""
        return self._newest + 1

    @property
    def dropped(self) -> int:
        """How many transitions were not kept, over all restarts: the spool or the disk was full."""
        return self._dropped

    def __len__(self) -> int:
        """How many transitions wait for their acknowledgement."""
        return self._waiting

    def close(self) -> None:
        """Commit and let go of the file; may be called twice."""
        try:
            self.commit()
        finally:
            self._database.close()

    def _restore(self) -> list[Stream]:
        """Return the streams that earlier openings left, oldest first, and at the end a new one.

        Raises:
            UnreadableStoreError: the file does not say what a spool can say.
        """
        rows = self._database.rows
        found = [self._stream(*row) for row in rows("SELECT base, boot_id, acknowledged FROM streams ORDER BY base")]
        ((top,),) = rows("SELECT coalesce(max(place), 0) FROM spool")
        bases = [*(one.base for one in found), max([top, *(one.base + one.acknowledged for one in found)])]
        if bases[-1] > LAST_PLACE:
            raise UnreadableStoreError(f"{self._database.path}: place {bases[-1]}, expected at most {LAST_PLACE}")
        for stream, end in zip(found, bases[1:], strict=True):
            stream.last = end - stream.base
            if min(stream.last, self._oldest(stream) - 1) < stream.acknowledged:
                raise UnreadableStoreError(
                    f"{self._database.path}: boot {stream.boot_id} has 1..{stream.acknowledged} acknowledged, but "
                    f"has sequence {self._oldest(stream)} of 1..{stream.last}"
                )
        return [*(one for one in found if self._oldest(one) <= one.last), Stream(bases[-1], uuid.uuid4().hex)]

    def _stream(self, base: int, boot_id: object, acknowledged: object) -> Stream:
        """Return what a row of ``streams`` says; raises UnreadableStoreError for one that nobody wrote so."""
        if not (
            isinstance(boot_id, str) and boot_id and isinstance(acknowledged, int) and min(base, acknowledged) >= 0
        ):
            raise UnreadableStoreError(
                f"{self._database.path}: the stream at {base} has boot id {boot_id!r} and acknowledged "
                f"{acknowledged!r}, expected a name and a number from 0 on"
            )
        return Stream(base, boot_id, acknowledged)

    def _due_of(self, stream: Stream, now_s: float, limit: int) -> list[Transition]:
        if stream.begins_round(now_s, self.config.resend_s) and stream.tells_gone:
            stream.tells_gone = False
            before = self._oldest(stream) - 1
            if before > 0:
                self._gone.append(Gone(self.robot_id, stream.boot_id, before))
        limit = min(limit, self.config.window - (stream.sent - stream.acknowledged))
        if limit <= 0:
            return []
        rows = self._database.rows(
            "SELECT place, CAST(payload AS BLOB) FROM spool WHERE place > ? AND place <= ? ORDER BY place LIMIT ?",
            (stream.base + stream.sent, stream.base + stream.last, limit),
        )
        stream.sent = rows[-1][0] - stream.base if len(rows) == limit else stream.last
        found = [one for place, payload in rows if (one := self._read(place, payload)) is not None]
        if len(found) < len(rows) and stream is not self._own and self._oldest(stream) > stream.last:
            self._streams.remove(stream)  # of a stream that is over, nothing is left that could be acknowledged
        return found

    def _read(self, place: int, payload: bytes) -> Transition | None:
        """Return the transition at ``place``; None for one that is damaged, which is deleted."""
        try:
            return decode(payload)
        except DamagedRecordError:
            with suppress(StoreError):  # a full disk: it is deleted when its turn comes again
                self._waiting -= self._database.execute("DELETE FROM spool WHERE place = ?", (place,)).rowcount
                self._bytes -= len(payload)
                self.unreadable += 1
            return None

    def _oldest(self, stream: Stream) -> int:
        """Return the lowest sequence of ``stream`` that is here; the one after the last when nothing is."""
        ((place,),) = self._database.rows(
            "SELECT min(place) FROM spool WHERE place > ? AND place <= ?", (stream.base, stream.base + stream.last)
        )
        return stream.last + 1 if place is None else place - stream.base

    def _delete(self, stream: Stream, sequence: int) -> int:
        """Delete 1..``sequence`` of ``stream``; return how many went."""
        self._database.begin()
        run, end = self._database.execute, stream.base + sequence
        ((size,),) = self._database.rows(f"SELECT {SIZE} FROM spool WHERE place > ? AND place <= ?", (stream.base, end))
        gone = run("DELETE FROM spool WHERE place > ? AND place <= ?", (stream.base, end)).rowcount
        run("UPDATE streams SET acknowledged = ? WHERE base = ?", (sequence, stream.base))
        run("DELETE FROM streams WHERE base < ? AND NOT EXISTS (SELECT 1 FROM spool WHERE place <= ?)",
            (stream.base, stream.base))  # fmt: skip
        self._database.commit()
        self._waiting -= gone
        self._bytes -= size
        return gone

    def _forget_uncommitted(self) -> None:
        """Give up what was added since the last commit, and count it."""
        self._database.rollback()
        self._dropped += self._newest - self._own.last
        self._newest = self._own.last
        self._count()

    def _count(self) -> None:
        """Look how much waits on disk."""
        ((self._waiting, self._bytes),) = self._database.rows(f"SELECT count(*), {SIZE} FROM spool")

    def _counted(self, name: str) -> int:
        """Return the counter ``name``; raises UnreadableStoreError if it is none."""
        for (value,) in self._database.rows("SELECT value FROM state WHERE name = ?", (name,)):
            if not (isinstance(value, int) and value >= 0):
                raise UnreadableStoreError(f"{self._database.path}: {name} is {value!r}, expected a number from 0 on")
            return value
        return 0

    def _put_state(self, name: str, value: str | int) -> None:
        self._database.execute("INSERT OR REPLACE INTO state VALUES (?,?)", (name, value))
