"""Which versions the gate has to ask the learner to promote, one after the other, each until it drives. No ROS."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from engram.core.errors import EngramError, StoreError, WeightsError

ANSWER_S = 20.0
"""Longest wait for the learner's answer [s]; then it is asked again, or whoever came in its place."""
AGAIN_S = 30.0
"""After so long a learner is asked again that could not promote [s]."""
LATER = "ask again: "
"""How the learner's answer begins where nothing is in the way but its disk, or a canary that is not through yet."""
PAUSE_S = 5.0
"""A learner that came in its place says first what drives [s]: what does is not asked for again."""


class NotYetError(WeightsError):
    """A promotion has to wait for something that ends by itself."""


def answer(promote: Callable[[], str]) -> tuple[bool, str]:
    """Return whether ``promote`` did so, and what it says of that or why it did not."""
    try:
        return True, promote()
    except (OSError, StoreError, NotYetError) as error:
        return False, f"{LATER}{error}"
    except EngramError as error:
        return False, str(error)


class Promotions:
    """Versions that were promoted and do not drive yet.

    Args:
        clock: tells the time that waiting is measured in [s].
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: deque[str] = deque()
        self._until, self._pause_until, self.asked = 0.0, 0.0, ""

    def add(self, version: str) -> None:
        """Ask for ``version`` when its turn comes, and once."""
        if version not in self._waiting:
            self._waiting.append(version)

    def next(self) -> str:
        """Return what the learner is to be asked for now; empty: nothing."""
        if self.asked or not self._waiting or self._clock() < self._pause_until:
            return ""
        self.asked, self._until = self._waiting[0], self._clock() + ANSWER_S
        return self.asked

    def is_lost(self, *, learner_there: bool) -> bool:
        """Tell whether no answer will come any more; the next learner is then asked, after a pause."""
        if not self.asked or (learner_there and self._clock() <= self._until):
            return False
        self.asked, self._pause_until = "", self._clock() + PAUSE_S
        return True

    def answered(self, *, accepted: bool, reason: str) -> None:
        """Take note of the learner's answer. Unless it accepted, or said why not for good, it is asked again."""
        if accepted or (reason and not reason.startswith(LATER)):
            self.drives(self.asked)
        else:
            self._pause_until = self._clock() + AGAIN_S
        self.asked = ""

    def drives(self, version: str) -> None:
        """Take note that ``version`` drives, on one robot or on all."""
        self._waiting = deque(one for one in self._waiting if one != version)
