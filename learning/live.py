"""How the versions that drove have done on the robots, and whether the one that drives now does worse than before.

Simulation lets a candidate drive; only the robots can show that it was right. A version is worse once its successes on
a task are shown to be rarer than the lower confidence bound (Clopper & Pearson 1934) of the version before, of those
that were tried enough. The test may be looked at after every episode: :class:`engram.core.betting.MeanTest`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from scipy.stats import binomtest

from engram.core.betting import MeanTest
from engram.core.durable import write_atomic
from engram.core.errors import DAMAGED
from engram.learning.experience.database import unreadable

MOST = 1000
"""Episodes of a version on a task that are remembered, the first ones."""
RECENT = 200
"""Episodes of all versions and tasks that are remembered in their order, the newest."""
ENOUGH = 10
"""So many episodes of a version on a task show how often it succeeds there."""
HELPED = "h"
"""In that order: a success with a person's help, which is none of the version."""

Outcomes = Mapping[str, str]
"""Task -> one character an episode, in the order in which they came: 1 succeeded, 0 did not."""


class LiveRecord:
    """Outcomes of every version that drove, kept in one file; :attr:`cursor` is the last episode that was counted.

    Raises:
        UnreadableStoreError: the file is damaged.
        StoreError: the disk refuses it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cursor = 0
        self._store = ""
        self.recent: deque[tuple[str, str]] = deque(maxlen=RECENT)
        """Version and outcome (1, 0 or ``HELPED``) of the newest episodes, the oldest first."""
        self._of: dict[str, dict[str, str]] = {}
        if path.exists():
            try:
                kept = json.loads(path.read_text())
                self.cursor, self._store = int(kept["cursor"]), str(kept.get("store", ""))
                self._of = {str(v): {str(t): _checked(o) for t, o in of.items()} for v, of in kept["outcomes"].items()}
                self.recent.extend((str(v), _checked(o, f"01{HELPED}")) for v, o in kept.get("recent", ()))
            except DAMAGED as error:
                raise unreadable(error)(f"{path}: the record of live episodes cannot be read: {error!r}") from error

    def follow(self, store: str) -> None:
        """Count the episodes of the experience store with the id ``store``, of another one than before from its first.

        What was counted in the other one stays. Empty: the store is not known.
        """
        if store and self._store not in ("", store):
            self.cursor = 0
        self._store = store or self._store

    def add(self, number: int, version: str, task: str, success: bool, *, helped: bool = False) -> None:
        """Count episode ``number``, which came after all others; what was ``helped`` to its end is no success."""
        self.cursor = number
        self.recent.append((version, HELPED if helped else "01"[success]))
        of = self._of.setdefault(version, {})
        if len(of.setdefault(task, "")) < MOST:
            of[task] += "01"[success and not helped]

    def of(self, version: str) -> Outcomes:
        """Return the outcomes of ``version`` by task."""
        return dict(self._of.get(version, {}))

    def shown(self, versions: Sequence[str]) -> dict[str, str]:
        """Return which of ``versions``, the oldest first, tells how it went on each task.

        It is the newest with ``ENOUGH`` episodes of the task; where none has them, the newest of those with the most.
        """
        known = {version: self.of(version) for version in reversed(versions)}
        tasks = dict.fromkeys(task for of in known.values() for task in of)
        return {task: max(known, key=lambda one: min(ENOUGH, len(known[one].get(task, "")))) for task in tasks}

    def keep(self, versions: Collection[str]) -> None:
        """Forget every version but ``versions``."""
        self._of = {version: of for version, of in self._of.items() if version in versions}

    def episodes(self, version: str) -> int:
        """Return how many episodes of ``version`` were counted."""
        return sum(map(len, self._of.get(version, {}).values()))

    def save(self) -> None:
        """Keep everything; it is durable when this returns."""
        write_atomic(self._path, json.dumps(self._kept()).encode())

    def _kept(self) -> dict[str, object]:
        return {"store": self._store, "cursor": self.cursor, "outcomes": self._of, "recent": list(self.recent)}


def worse_than_before(now: Outcomes, before: Outcomes, false_rollback: float) -> tuple[str, str] | None:
    """Return on which task ``now`` is shown to be worse than ``before``, and by how much; None: on none.

    There is an answer with a probability of at most ``false_rollback``, however often it is asked, if no task's
    rate of success has fallen. Half of that is spent on the bounds of before, half on the tests; tasks share it.
    """
    tasks = [task for task, outcomes in before.items() if "1" in outcomes]
    for task in tasks:
        error = false_rollback / 2 / len(tasks)
        had = before[task]
        successes = had.count("1")
        bound = binomtest(successes, len(had), alternative="greater").proportion_ci(1 - error, "exact").low
        test = MeanTest(1.0 - bound)
        for outcome in now.get(task, ""):
            test.add(bound - float(outcome))
        if test.shown(error):
            seen = now[task]
            return task, f"{task} {seen.count('1')} of {len(seen)}, before {successes} of {len(had)}"
    return None


def _checked(outcomes: object, known: str = "01") -> str:
    if not isinstance(outcomes, str) or set(outcomes) - set(known):
        raise ValueError(f"outcomes {outcomes!r}, expected a text of {' and '.join(known)}")
    return outcomes
