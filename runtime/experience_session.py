"""What the learner node does with experience, whether it learns from it or not. No ROS."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from engram.core.errors import WeightsError
from engram.core.types import Transition
from engram.learning.experience.receiver import ExperienceReceiver, Receipt
from engram.learning.experience.spool_stream import Gone
from engram.learning.experience.store import ExperienceStore
from engram.runtime.health import DROPS, Health

QUEUED_MAX = 256 << 20
"""Experience that waits for the disk [bytes]; what comes beyond is dropped, and its robot sends it again."""
OVERHEAD = 4096
"""What a step counts beyond its arrays and texts [bytes], so that a million empty ones are bounded, too."""


class ExperienceOutputs(Protocol):
    """Where receipts go."""

    def acknowledge(self, receipt: Receipt) -> None:
        """Tell a robot what is on disk."""


class ExperienceSession:
    """Stores what robots send, and acknowledges it once it is durable.

    By itself it trains nothing: for a policy that the learner cannot train. Its robot loses nothing all the same.

    Args:
        store: keeps the experience; it stays the caller's.
        outputs: where receipts go.
        health: where counters and problems are shown.
        why: why nothing is trained.
    """

    def __init__(self, store: ExperienceStore, outputs: ExperienceOutputs, health: Health, why: str = "") -> None:
        self._store, self._receipts, self._health, self._why = store, outputs, health, why
        self._receiver = ExperienceReceiver(store)
        self._queued, self._lock = 0, threading.Lock()  # bytes that came and are not stored yet
        self._taken = 0  # of them, those that are with the receiver
        self._look()

    def begin(self) -> None:
        """Begin to take in experience, what it had before included."""
        self._receiver = ExperienceReceiver(self._store)

    def end(self) -> None:
        """Make everything durable; the other threads have ended."""
        self.commit()

    def reserve(self, what: Transition | Gone) -> int:
        """Count ``what``, which came, and reserve room for it until it is stored; return the bytes, to be handed to
        :meth:`take`. 0: there is no room, and it is lost.

        It may be called in another thread.
        """
        size = _bytes_of(what)
        self._health.count("experience")
        with self._lock:
            if self._queued + size <= QUEUED_MAX:
                self._queued += size
                return size
        self._health.count("experience" + DROPS)
        return 0

    def take(self, what: Transition | Gone, size: int = 0) -> None:
        """Take in a transition, or word of what is gone, until the next :meth:`commit`.

        ``size``: the bytes that :meth:`reserve` reserved for it, if it was asked.
        """
        self._taken += size
        self._receiver.take(what)

    def commit(self) -> None:
        """Store what was received and acknowledge it."""
        if not len(self._receiver):
            return
        try:
            with self._health.timed("commit"):
                received = self._receiver.commit()
        finally:  # what a disk refused is gone from here, too
            with self._lock:
                self._queued, self._taken = self._queued - self._taken, 0
        for name, reasons in (("refused", received.refused), ("taken", received.taken)):
            if reasons:
                self._health.count(f"experience {name}", len(reasons))
                self._health.problem(f"experience {name}", reasons[0])
        self._look()
        for receipt in received.receipts:
            self._receipts.acknowledge(receipt)

    def _look(self) -> None:
        self._stored, self._missing = self._store.size(), self._store.missing()
        self._unfinished = self._store.unfinished()

    def close(self) -> None:
        """Let go of everything but the store."""

    def train(self, goes_on: Callable[[], bool]) -> None:
        """Train while ``goes_on``; here: not at all."""

    def promote(self, version: str, reason: str) -> str:
        """Let ``version`` drive and return what proves it; raises WeightsError."""
        raise WeightsError(f"there is no version {version or 'yet'}: nothing is trained, {self._why}")

    def roll_back(self, version: str, reason: str) -> str:
        """Go back to ``version`` and return it; raises WeightsError."""
        raise WeightsError(f"there is no version {version or 'before'}: nothing is trained, {self._why}")

    @property
    def driving(self) -> str:
        """The version that drives; empty: none of this learner."""
        return ""

    @property
    def unannounced(self) -> str:
        """What robots have not been told of yet, and why, to be added to an answer; empty: they know everything."""
        return ""

    def show(self) -> None:
        """Show how much is stored, and why nothing is trained."""
        self._health.note("stored transitions", str(self._stored))
        self._health.note("transitions gone before they came", str(self._missing))
        count, newest = self._unfinished
        self._health.note("episodes that are not whole", ", ".join((str(count), *newest)))
        if self._why:
            self._health.note("trains", f"nothing: {self._why}")


def _bytes_of(what: Transition | Gone) -> int:
    """Return about how much memory ``what`` takes."""
    if isinstance(what, Gone):
        return OVERHEAD
    arrays = [*what.images.values(), what.state, what.action, what.executed_action]
    texts = [what.instruction, what.task, *what.memory_ids]
    if what.context is not None:
        arrays.append(what.context.tokens)
        texts += what.context.source_ids
    return OVERHEAD + sum(array.nbytes for array in arrays) + sum(map(len, texts))
