"""Which episodes the experience store deletes: all but a sample of each task's, and the oldest beyond a bound on disk.

Rows are deleted at best once they are acknowledged: before that, the robot would send them again. But the bound holds,
whatever is sent: then what was deleted and comes again is not listed a second time.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engram.core.errors import InvalidInputError
from engram.learning.experience.database import Database
from engram.learning.experience.intake import OF_EPISODE, OF_STREAM, Stream

TRIMMED_TO = 0.95
"""Share of the bound down to which a full store is emptied, so that not every commit has to delete."""
_OF_GROUP = "task = CAST(? AS TEXT) AND success = ?"
YOUNG = 1000
"""Newest episodes that go last where they are not acknowledged, or may still grow."""
STREAMS = 10_000
"""Most streams that are known. Each start of a robot begins one. One that is forgotten is counted anew from what is
stored of it, and from what its robot says is gone."""
REMEMBERED = 10_000
"""Most episodes of which it is known that they were deleted before they were acknowledged, and most ranges of numbers
that never came."""


@dataclass(frozen=True)
class ExperienceStoreConfig:
    """What is kept."""

    max_mb: float = 8192.0
    """Most experience on disk [MB]; beyond it the oldest episodes go, whatever their outcome. 0 = no bound."""
    episodes_per_task: int = 0
    """Successful episodes kept per task, and as many failed ones: a uniform sample of all there were, and at the start
    of those that are stored. 0 = all."""
    seed: int = 0
    """Seed of that sample."""

    def __post_init__(self) -> None:
        for name in ("max_mb", "episodes_per_task", "seed"):
            if not getattr(self, name) >= 0:
                raise InvalidInputError(f"ExperienceStoreConfig.{name}: {getattr(self, name)}, expected 0 or more")


class Retention:
    """Applies ``config`` to the tables of an experience store, within the transaction that is open."""

    def __init__(self, database: Database, config: ExperienceStoreConfig) -> None:
        self._database, self._config = database, config

    def fit(self) -> bool:
        """Drop episodes of each task and outcome, all with the same probability, until so many are left as shall be.

        What there is counts as met from then on. Returns whether any was dropped.
        """
        size, dropped = self._config.episodes_per_task, False
        groups = (
            "SELECT CAST(task AS BLOB), success, count(*), coalesce((SELECT met FROM reservoirs r "
            "WHERE r.task = e.task AND r.success = e.success), 0) FROM episodes e "
            "WHERE kept AND success IN (0, 1) AND typeof(task) = 'text' GROUP BY task, success"
        )
        for task, success, count, met in self._database.rows(groups) if size else ():
            group = (task, success)
            if met < count:
                self._database.execute(
                    "INSERT OR REPLACE INTO reservoirs VALUES (CAST(? AS TEXT),?,?)", (*group, count)
                )
            if count <= size:
                continue
            kept = self._database.rows(f"SELECT number FROM episodes WHERE {_OF_GROUP} AND kept ORDER BY number", group)
            rng = np.random.default_rng((self._config.seed, zlib.crc32(task), int(success), count))
            for at in rng.permutation(count)[size:].tolist():
                self._database.execute("UPDATE episodes SET kept = 0 WHERE number = ?", kept[at])
            dropped = True
        return dropped

    def sample(self, task: str, success: bool) -> None:
        """Drop one episode if ``task`` has too many of that outcome (reservoir sampling, Vitter's algorithm R)."""
        size = self._config.episodes_per_task
        if not size:
            return
        group = (task, success)
        row = self._database.execute("SELECT met FROM reservoirs WHERE task = ? AND success = ?", group).fetchone()
        met = (row[0] if row else 0) + 1
        self._database.execute("INSERT OR REPLACE INTO reservoirs VALUES (?,?,?)", (*group, met))
        kept = self._database.execute(
            "SELECT number FROM episodes WHERE task = ? AND success = ? AND kept ORDER BY number", group
        ).fetchall()
        if len(kept) <= size:
            return
        rng = np.random.default_rng((self._config.seed, zlib.crc32(task.encode()), int(success), met))
        place = int(rng.integers(met))
        victim = kept[place][0] if place < size else kept[-1][0]  # the last one is the newcomer
        self._database.execute("UPDATE episodes SET kept = 0 WHERE number = ?", (victim,))

    def delete(self) -> None:
        """Delete the steps of dropped episodes; then the oldest episodes, whole or not, until the bound holds."""
        rows = self._database.rows(
            "SELECT e.robot_id, e.boot_id, e.episode FROM episodes e "
            "LEFT JOIN streams s USING (robot_id, boot_id) WHERE e.stored AND NOT e.kept "
            "AND e.last_sequence <= coalesce(s.acked, e.last_sequence)"
        )
        for key in rows:
            self._delete_episode(key)
        self._trim()
        self._database.execute(
            "DELETE FROM episodes WHERE NOT stored AND last_sequence <= coalesce((SELECT acked FROM streams s "
            "WHERE s.robot_id = episodes.robot_id AND s.boot_id = episodes.boot_id), last_sequence)"
        )

    def may_have_forgotten(self, known: int) -> bool:
        """Tell whether streams may have been forgotten, where so many are known: never fewer are left of them."""
        return known >= int(TRIMMED_TO * STREAMS)

    def forget(self, streams: Collection[Stream]) -> set[Stream]:
        """Forget what is remembered beside the steps, beyond a number of each kind; the oldest goes first.

        Args:
            streams: all, those that were heard of last at the end.

        Returns:
            streams that are no longer known: those of which nothing is stored went first.
        """
        gone: set[Stream] = set()
        if len(streams) >= STREAMS:
            stored = set(self._database.rows("SELECT DISTINCT robot_id, boot_id FROM sizes"))
            in_turn = sorted(streams, key=lambda stream: stream in stored)
            gone = set(in_turn[: len(streams) - int(TRIMMED_TO * STREAMS)])
        for stream in gone:
            self._database.execute(f"DELETE FROM streams WHERE {OF_STREAM}", stream)
            self._database.execute(f"DELETE FROM episodes WHERE {OF_STREAM} AND NOT stored", stream)
            self._forget_skipped(OF_STREAM, stream)
        self._forget_skipped("rowid <= (SELECT rowid FROM skipped ORDER BY rowid DESC LIMIT 1 OFFSET ?)", (REMEMBERED,))
        self._database.execute(
            "DELETE FROM episodes WHERE NOT stored AND number <= "
            "(SELECT number FROM episodes WHERE NOT stored ORDER BY number DESC LIMIT 1 OFFSET ?)",
            (REMEMBERED,),
        )
        return gone

    def _trim(self) -> None:
        limit = self._config.max_mb * 1e6
        stored = self._bytes() if limit else 0
        if stored <= limit:
            return
        for robot, boot, episode, size in self._in_turn():
            self._delete_episode((robot, boot, episode))
            stored -= size
            if stored <= TRIMMED_TO * limit:
                break
        if self._config.episodes_per_task:
            self._database.execute(
                "DELETE FROM reservoirs WHERE (task, success) NOT IN (SELECT task, success FROM episodes WHERE kept)"
            )

    def _bytes(self) -> int:
        return int(self._database.rows("SELECT coalesce(sum(bytes), 0) FROM sizes")[0][0])

    def _in_turn(self) -> list[tuple[str, str, int, int]]:
        """Return (robot, boot, episode, bytes) in the order in which they go, the oldest first.

        What is not acknowledged, or is the newest of a robot, which may still grow, goes last while it is young.
        """
        return self._database.rows(
            "SELECT robot_id, boot_id, episode, CAST(coalesce(bytes, 0) AS INTEGER) "
            "FROM sizes LEFT JOIN streams s USING (robot_id, boot_id) "
            "ORDER BY place > (SELECT max(place) FROM sizes) - ? AND (last_sequence > coalesce(s.acked, last_sequence) "
            "OR place IN (SELECT max(place) FROM sizes GROUP BY robot_id)), place",
            (YOUNG,),
        )

    def _delete_episode(self, key: tuple[str, str, int]) -> None:
        """Delete the steps of an episode. If it was listed, that stays known until all of it is acknowledged."""
        self._database.execute(f"DELETE FROM transitions WHERE {OF_EPISODE}", key)
        self._database.execute(f"DELETE FROM sizes WHERE {OF_EPISODE}", key)
        self._database.execute(
            "UPDATE episodes SET kept = 0, stored = 0, task = '', instruction = '', policy_version = '', "
            f"sources = '[]' WHERE {OF_EPISODE}",
            key,
        )

    def _forget_skipped(self, where: str, values: Sequence[Any]) -> None:
        """Forget which numbers were skipped, but not how many transitions never came."""
        ((missing,),) = self._database.rows(f"SELECT coalesce(sum(missing), 0) FROM skipped WHERE {where}", values)
        if self._database.execute(f"DELETE FROM skipped WHERE {where}", values).rowcount:
            self._database.execute("INSERT INTO skipped VALUES ('', '', 0, 0, ?)", (missing,))  # of no robot
