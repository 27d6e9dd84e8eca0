"""The robot's end of the experience link: transitions stay on its disk until the learner has acknowledged them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from engram.core.arrays import positive_int
from engram.core.errors import InvalidInputError
from engram.core.types import Transition
from engram.learning.experience.codec import decode, encode
from engram.learning.experience.database import Database

VERSION = 2
SCHEMA = """
CREATE TABLE spool (sequence INTEGER PRIMARY KEY, payload BLOB);
CREATE TABLE state (name TEXT PRIMARY KEY, value) WITHOUT ROWID
"""
MIGRATIONS = {1: ""}
"""Version 1 did not say whose actions a transition holds: such transitions are still sent, of an unknown source."""


@dataclass(frozen=True)
class SpoolConfig:
    """Bounds of the spool and pace of repeating."""

    capacity: int = 200_000
    """Most transitions on disk; when full, new ones are dropped and counted (two 128 px images: about 50 kB each)."""
    resend_s: float = 2.0
    """Without progress of the acknowledgement for this long, everything unacknowledged is sent again."""

    def __post_init__(self) -> None:
        positive_int("SpoolConfig.capacity", self.capacity)


class Spool:
    """Transitions in order, numbered 1, 2, 3, ... under this spool's own boot id; a restart continues the count.

    Only committed transitions are handed out: a number that was sent always means the same transition.
    """

    def __init__(self, folder: Path | str, robot_id: str, config: SpoolConfig | None = None) -> None:
        if not robot_id:
            raise InvalidInputError("Spool.robot_id: empty, expected the robot's name")
        self.robot_id = robot_id
        self.config = config or SpoolConfig()
        self._database = Database(Path(folder) / "spool.sqlite", SCHEMA, VERSION, MIGRATIONS)
        self.boot_id = str(self._state("boot_id", uuid.uuid4().hex))
        self.acknowledged = int(self._state("acknowledged", 0))
        self._dropped = int(self._state("dropped", 0))
        newest = self._database.execute("SELECT max(sequence) FROM spool").fetchone()[0] or 0
        self._newest = self.durable = max(newest, self.acknowledged)
        self._sent = self.acknowledged
        self._progress_s = float("-inf")

    def add(self, transition: Transition) -> Transition | None:
        """Number and keep ``transition``; None if the spool is full. Durable after the next :meth:`commit`."""
        self._database.begin()
        if len(self) >= self.config.capacity:
            # dropping a new one leaves no gap in the sequence, dropping an old one would stop the cumulative ack
            self._dropped += 1
            self._put_state("dropped", self._dropped)
            return None
        self._newest += 1
        numbered = replace(transition, robot_id=self.robot_id, boot_id=self.boot_id, sequence=self._newest)
        self._database.execute("INSERT INTO spool VALUES (?,?)", (self._newest, encode(numbered)))
        return numbered

    def commit(self) -> int:
        """Make what was added durable and return the newest durable sequence."""
        self._database.commit()
        self.durable = self._newest
        return self.durable

    def due(self, now_s: float, limit: int) -> list[Transition]:
        """Return at most ``limit`` transitions to send now, oldest first, at monotonic time ``now_s``.

        Each is due once, and again when the acknowledgement has not moved for ``resend_s``.
        """
        if self._sent > self.acknowledged and now_s - self._progress_s >= self.config.resend_s:
            self._sent = self.acknowledged
        rows = self._database.execute(
            "SELECT payload FROM spool WHERE sequence > ? AND sequence <= ? ORDER BY sequence LIMIT ?",
            (self._sent, self.durable, limit),
        ).fetchall()
        if rows and self._sent == self.acknowledged:
            self._progress_s = now_s
        self._sent += len(rows)
        return [decode(payload) for (payload,) in rows]

    def acknowledge(self, sequence: int, now_s: float) -> int:
        """Forget 1..``sequence``, which the learner has on disk; return how many went. An older receipt is no error.

        Raises:
            InvalidInputError: the receipt is for more than there ever was.
        """
        if sequence > self.durable:
            raise InvalidInputError(
                f"ack {sequence} of {self.robot_id}/{self.boot_id}: only 1..{self.durable} exist; is another robot "
                "using this name?"
            )
        if sequence <= self.acknowledged:
            return 0
        gone = sequence - self.acknowledged
        self._database.begin()
        self._database.execute("DELETE FROM spool WHERE sequence <= ?", (sequence,))
        self._put_state("acknowledged", sequence)
        self.commit()
        self.acknowledged, self._sent, self._progress_s = sequence, max(self._sent, sequence), now_s
        return gone

    @property
    def dropped(self) -> int:
        """How many transitions were refused because the spool was full, over all restarts."""
        return self._dropped

    def __len__(self) -> int:
        """How many transitions wait for their acknowledgement."""
        return self._newest - self.acknowledged

    def close(self) -> None:
        """Commit and let go of the file; may be called twice."""
        self._database.commit()
        self._database.close()

    def _state(self, name: str, default: str | int) -> str | int:
        row = self._database.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
        if row is None:
            self._put_state(name, default)
            return default
        return row[0]

    def _put_state(self, name: str, value: str | int) -> None:
        self._database.execute("INSERT OR REPLACE INTO state VALUES (?,?)", (name, value))
