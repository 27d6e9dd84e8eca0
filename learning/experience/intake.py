"""What the experience store takes in: each id once, and never another transition in its place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from engram.core.errors import EngramError, InvalidInputError
from engram.core.types import Transition
from engram.learning.experience.codec import DamagedRecordError, decode, encode
from engram.learning.experience.database import Database

LARGEST = 2**63 - 1
"""Largest integer of SQLite."""
_NUMBERS = 64
"""Bytes of the numbers in a row and its indices."""
NAME_MAX = 200
"""Longest name of a robot or a boot [characters]."""
OF_STREAM = "robot_id = ? AND boot_id = ?"
ROW = f"{OF_STREAM} AND sequence = ?"
OF_EPISODE = f"{OF_STREAM} AND episode = ?"
Stream = tuple[str, str]
"""Robot and boot."""


class TakenIdError(EngramError):
    """Transitions were not stored because others with their ids are: two robots share a name, or a spool was copied."""

    def __init__(self, transitions: Sequence[Transition]) -> None:
        self.transitions = tuple(transitions)
        first = self.transitions[0]
        super().__init__(
            f"{len(self.transitions)} transitions not stored, the first {first.robot_id}/{first.boot_id}/"
            f"{first.sequence}: other ones with these ids are stored; does another robot use this name, or was its "
            "spool copied while it ran?"
        )


def payload_of(one: Transition) -> bytes:
    """Return ``one`` encoded; raises InvalidInputError."""
    numbers = 1 <= one.sequence < LARGEST and 0 <= one.episode <= LARGEST
    if not (numbers and are_names(one.robot_id, one.boot_id)):
        raise InvalidInputError(
            f"Transition {one.robot_id[:NAME_MAX]!r}/{one.boot_id[:NAME_MAX]!r}/{one.sequence} of episode "
            f"{one.episode}: expected two names of 1 to {NAME_MAX} characters, a sequence of 1 or more and an episode "
            "of 0 or more, below 2**63"
        )
    return encode(one)


def are_names(*texts: str) -> bool:
    """Tell whether each of ``texts`` can be the name of a robot or a boot."""
    return all(1 <= len(text) <= NAME_MAX for text in texts)


class Intake:
    """Writes transitions into the tables of a store, within the transaction that is open."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.touched: dict[tuple[str, str, int], None] = {}
        """Episodes (robot, boot, episode) with new steps."""
        self.taken_back: dict[Stream, int] = {}
        """Streams of which something came that was said to be gone, and from which number on that counts no more."""

    def clear(self) -> None:
        """Forget what is noted of the transaction: it is over."""
        self.touched.clear()
        self.taken_back.clear()

    def take(self, one: Transition, payload: bytes, acked: int) -> bool:
        """Store ``one`` unless it is or was here; return False if its id belongs to another transition.

        1..``acked`` of its stream were acknowledged. If it is one of those that were said to be gone, its robot has it:
        that word was wrong, and is taken back.
        """
        key = (one.robot_id, one.boot_id, one.sequence)
        found = self._database.rows(
            "SELECT episode, CAST(payload AS BLOB), coalesce(length(CAST(source AS BLOB)), 0) "
            f"FROM transitions WHERE {ROW}",
            key,
        )
        if self._known(key, acked) and (not found or found[0][1] == payload):
            self._take_back(key)
        if not found:
            if not self._known(key, acked):
                self._insert(one, payload)
                self.touched[*key[:2], one.episode] = None
            return True
        ((episode, stored, source),) = found
        if stored == payload:
            return True
        try:
            if encode(decode(stored)) == payload:  # written by an earlier version
                return True
        except DamagedRecordError:  # it came again: this is what it was
            self._database.execute(f"UPDATE transitions SET payload = ? WHERE {ROW}", (payload, *key))
            return True
        if one.sequence > acked and not self._is_listed((*key[:2], episode)):
            # which of them is the robot's own? It will send that again
            self._remove(key, episode, _bytes_of(key, len(stored) + source))
        return False

    def _insert(self, one: Transition, payload: bytes) -> None:
        stream, ended = (one.robot_id, one.boot_id), one.terminated or one.truncated
        source = json.dumps(asdict(one.source), sort_keys=True)
        values = (*stream, one.sequence, one.episode, one.step, ended, float(one.reward), payload, source)
        self._database.execute("INSERT INTO transitions VALUES (?,?,?,?,?,?,?,?,?)", values)
        self._database.execute(
            "INSERT INTO sizes (robot_id, boot_id, episode, last_sequence, bytes) VALUES (?,?,?,?,?) "
            "ON CONFLICT (robot_id, boot_id, episode) DO UPDATE SET bytes = bytes + excluded.bytes, "
            "last_sequence = max(last_sequence, excluded.last_sequence)",
            (*stream, one.episode, one.sequence, _bytes_of((*stream, one.sequence), len(payload) + len(source))),
        )
        # It was deleted before it was acknowledged, and comes again: that is deleted, too, and not listed anew.
        self._database.execute(
            f"UPDATE episodes SET stored = 1 WHERE {OF_EPISODE} AND NOT stored", (*stream, one.episode)
        )

    def _remove(self, key: tuple[str, str, int], episode: int, size: int) -> None:
        self._database.execute(f"DELETE FROM transitions WHERE {ROW}", key)
        self._database.execute(f"UPDATE sizes SET bytes = bytes - ? WHERE {OF_EPISODE}", (size, *key[:2], episode))
        self._database.execute(f"DELETE FROM sizes WHERE {OF_EPISODE} AND bytes <= 0", (*key[:2], episode))

    def _is_listed(self, key: tuple[str, str, int]) -> bool:
        return bool(self._database.execute(f"SELECT 1 FROM episodes WHERE {OF_EPISODE}", key).fetchone())

    def _known(self, key: tuple[str, str, int], acked: int) -> bool:
        """Tell whether this number is acknowledged, and stays so."""
        return key[2] <= acked and key[2] < self.taken_back.get(key[:2], LARGEST)

    def _take_back(self, key: tuple[str, str, int]) -> None:
        """Count nothing as gone any more from where the range begins that has this number, if one has."""
        ((first,),) = self._database.rows(
            f"SELECT min(first) FROM skipped WHERE {OF_STREAM} AND ? BETWEEN first AND last", key
        )
        if first is not None:
            self._database.execute(f"DELETE FROM skipped WHERE {OF_STREAM} AND last >= ?", (*key[:2], first))
            self.taken_back[key[:2]] = first


def _bytes_of(key: tuple[str, str, int], content: int) -> int:
    """Return about how many bytes a transition takes on disk: its id is in the table and in two indices."""
    return content + 3 * (len(key[0]) + len(key[1])) + _NUMBERS
