"""What the learner node does with experience, whether it learns from it or not. No ROS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engram.core.errors import WeightsError
from engram.core.types import Transition
from engram.learning.experience.receiver import ExperienceReceiver, Receipt
from engram.learning.experience.spool_stream import Gone
from engram.learning.experience.store import ExperienceStore
from engram.runtime.health import Health


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
        self._look()

    def begin(self) -> None:
        """Begin to take in experience, what it had before included."""
        self._receiver = ExperienceReceiver(self._store)

    def end(self) -> None:
        """Make everything durable; the other threads have ended."""
        self.commit()

    def take(self, what: Transition | Gone) -> None:
        """Take in a transition, or word of what is gone, until the next :meth:`commit`."""
        self._receiver.take(what)

    def commit(self) -> None:
        """Store what was received and acknowledge it."""
        if not len(self._receiver):
            return
        with self._health.timed("commit"):
            received = self._receiver.commit()
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
