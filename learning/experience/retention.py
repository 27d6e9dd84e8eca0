"""Which episodes the experience store deletes: all but a sample of each task's, and the oldest beyond a bound on disk.

Rows are deleted only once they are acknowledged: before that, the robot would send them again.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from engram.core.errors import InvalidInputError
from engram.learning.experience.database import Database
from engram.learning.experience.intake import OF_EPISODE

TRIMMED_TO = 0.95
"""Share of the bound down to which a full store is emptied, so that not every commit has to delete."""


@dataclass(frozen=True)
class ExperienceStoreConfig:
    """What is kept."""

    max_mb: float = 8192.0
    """Most experience on disk [MB]; beyond it the oldest episodes go, whatever their outcome. 0 = no bound."""
    episodes_per_task: int = 0
    """Successful episodes kept per task, and as many failed ones: a uniform sample of all there were. 0 = all."""
    seed: int = 0
    """Seed of that sample."""

    def __post_init__(self) -> None:
        for name in ("max_mb", "episodes_per_task"):
            if not getattr(self, name) >= 0:
                raise InvalidInputError(f"ExperienceStoreConfig.{name}: {getattr(self, name)}, expected 0 or more")


class Retention:
    """Applies ``config`` to the tables of an experience store, within the transaction that is open."""

    def __init__(self, database: Database, config: ExperienceStoreConfig) -> None:
        self._database, self._config = database, config

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
        rows = self._database.execute(
            "SELECT e.robot_id, e.boot_id, e.episode FROM episodes e "
            "JOIN streams s USING (robot_id, boot_id) WHERE e.stored AND NOT e.kept AND e.last_sequence <= s.acked"
        ).fetchall()
        for key in rows:
            self._delete_episode(key)
        limit = self._config.max_mb * 1e6
        stored = self._bytes() if limit else 0
        if stored <= limit:
            return
        for *key, size in self._oldest():
            self._delete_episode(tuple(key))
            stored -= size
            if stored <= TRIMMED_TO * limit:
                return

    def _bytes(self) -> int:
        return int(self._database.execute("SELECT coalesce(sum(bytes), 0) FROM sizes").fetchone()[0])

    def _oldest(self) -> list[tuple[str, str, int, int]]:
        """Return (robot, boot, episode, bytes), oldest first; not the newest of a robot, which still grows."""
        return self._database.execute(
            "SELECT robot_id, boot_id, episode, bytes FROM sizes JOIN streams s USING (robot_id, boot_id) "
            "WHERE last_sequence <= s.acked "
            "AND place NOT IN (SELECT max(place) FROM sizes GROUP BY robot_id) ORDER BY place"
        ).fetchall()

    def _delete_episode(self, key: tuple[str, str, int]) -> None:
        self._database.execute(f"DELETE FROM transitions WHERE {OF_EPISODE}", key)
        self._database.execute(f"DELETE FROM sizes WHERE {OF_EPISODE}", key)
        self._database.execute(f"UPDATE episodes SET kept = 0, stored = 0 WHERE {OF_EPISODE}", key)
