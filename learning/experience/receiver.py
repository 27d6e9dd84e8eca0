"""The learner's end of the experience link: stores what came and says what may be acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from engram.core.errors import InvalidInputError
from engram.core.types import Transition
from engram.learning.experience.intake import Stream, TakenIdError
from engram.learning.experience.spool_stream import Gone
from engram.learning.experience.store import ExperienceStore

CONTESTED_S = 60.0
"""For so long after a second transition came under a stored id, that id is not acknowledged: its sender, who sends
again every few seconds, would delete it [s]."""


@dataclass(frozen=True)
class Receipt:
    """1..``sequence`` of a stream are on disk, or gone from the robot."""

    robot_id: str
    boot_id: str
    sequence: int


@dataclass
class Received:
    """What became of what came since the last commit."""

    receipts: list[Receipt] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Why single transitions were not stored: a value in them is not valid."""
    taken: list[str] = field(default_factory=list)
    """Which ids came again with another content."""


class ExperienceReceiver:
    """Puts transitions into ``store``, each on its own: a bad one does not keep out the others. For one thread."""

    def __init__(self, store: ExperienceStore, now_s: Callable[[], float] = time.monotonic) -> None:
        self._store, self._now_s = store, now_s
        self._waiting: list[Transition | Gone] = []
        self._contested: dict[Stream, tuple[int, float]] = {}  # lowest contested sequence, until when

    def __len__(self) -> int:
        """How much came since the last :meth:`commit`."""
        return len(self._waiting)

    def take(self, what: Transition | Gone) -> None:
        """Take in a transition, or word of what is gone, until the next :meth:`commit`."""
        self._waiting.append(what)

    def commit(self) -> Received:
        """Store what came since the last call.

        Raises:
            StoreError: the disk refuses it. Nothing is acknowledged, so the robots send it again.
        """
        waiting, self._waiting = self._waiting, []
        now_s = self._now_s()
        self._contested = {stream: about for stream, about in self._contested.items() if now_s < about[1]}
        result = Received()
        if not waiting:
            return result
        for one in waiting:
            if isinstance(one, Gone):
                self._store.gone(one.robot_id, one.boot_id, one.sequence)
            else:
                self._append(one, result)
        acknowledged = self._store.commit()
        shown: dict[Stream, int] = {}  # no robot is told of more than it has shown just now: it may have no more
        for one in waiting:
            stream = (one.robot_id, one.boot_id)
            shown[stream] = max(one.sequence, shown.get(stream, 0))
        for stream, sequence in shown.items():
            result.receipts.append(Receipt(*stream, min(sequence, acknowledged.get(stream, 0), self._bound(stream))))
        return result

    def _append(self, one: Transition, result: Received) -> None:
        try:
            self._store.append([one])
        except InvalidInputError as error:
            result.refused.append(str(error))
        except TakenIdError as error:
            stream = (one.robot_id, one.boot_id)
            lowest = min(one.sequence, self._bound(stream) + 1)
            self._contested[stream] = (lowest, self._now_s() + CONTESTED_S)
            result.taken.append(str(error))

    def _bound(self, stream: Stream) -> int:
        """Return up to which sequence ``stream`` may be acknowledged now."""
        return self._contested.get(stream, (2**63, 0.0))[0] - 1
