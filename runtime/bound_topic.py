"""A topic whose messages count from one writer alone: what is taken, what waits and what is refused. No ROS."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engram.core.claims import UNKNOWN, WriterClaim
from engram.runtime.health import ERROR, Health

PATIENCE_S = 5.0
"""A writer whose node stays unknown for so long is refused [s]."""
WRITERS = 8
"""Writers whose messages wait at most."""


@dataclass(slots=True)
class _Waiting:
    """A message that does not count yet."""

    msg: Any
    gid: bytes
    """Its writer."""
    nameless_s: float | None = None
    """Since when its writer's node is unknown, on the clock of its topic; None: it is known."""
    counted: bool = False
    """It is among those that were refused."""


class BoundTopic:
    """Passes on what the claim lets through, and what waits for its writer's name.

    Args:
        topic: its name.
        claim: decides whose messages count.
        robot_id: this robot; a message that names another one is refused. Empty: not known, and none is.
        callback: takes the messages.
        health: where refusals are counted and named.
        clock: tells the time that waiting is measured in [s].
        kept: how many messages of a writer may wait, the newest; they are passed on in their order.
    """

    def __init__(
        self,
        topic: str,
        claim: WriterClaim,
        robot_id: str,
        callback: Callable[[Any], None],
        health: Health,
        clock: Callable[[], float] = time.monotonic,
        *,
        kept: int = 1,
    ) -> None:
        self._topic, self._claim, self._robot_id = topic, claim, robot_id
        self._callback, self._health, self._clock = callback, health, clock
        self._kept = kept
        self._waiting: dict[bytes, deque[_Waiting]] = {}  # by writer: none pushes out what another one said

    def take(self, msg: Any, gid: bytes) -> None:
        """Take a message of the writer ``gid``."""
        reason, one = self._claim.refusal(gid), _Waiting(msg, gid)
        if not reason or self._may_wait(one, reason):
            self._line_of(gid).append(one)
        if not reason:
            self.retry()  # what waits of its writer comes first

    def retry(self) -> None:
        """Look again whether the messages that wait may be taken by now."""
        for gid, line in list(self._waiting.items()):
            reason = self._claim.refusal(gid)  # each writer is judged once: what waits of it stays in order
            for _ in range(len(line)):
                one = line.popleft()
                if not reason:
                    self._pass_on(one.msg)
                elif self._may_wait(one, reason):
                    line.append(one)
            if not line:
                self._waiting.pop(gid, None)

    def _line_of(self, gid: bytes) -> deque[_Waiting]:
        """Return where the messages of the writer ``gid`` wait; where too many wait, a stranger goes first."""
        if gid not in self._waiting and len(self._waiting) >= WRITERS:
            strangers = (one for one in self._waiting if not self._claim.may_succeed(one))
            del self._waiting[next(strangers, next(iter(self._waiting)))]
        return self._waiting.setdefault(gid, deque(maxlen=self._kept))

    def _may_wait(self, one: _Waiting, reason: str) -> bool:
        """Tell whether a message that is refused for ``reason`` may count later; else name the reason, and count it.

        It may where its writer's name is to come, and where the writer waits for its predecessor to go: what is latched
        comes only once. What a writer said that is gone itself counts no more.
        """
        if reason != UNKNOWN:
            one.nameless_s = None
        elif one.nameless_s is None:
            one.nameless_s = self._clock()
        if one.nameless_s is not None and self._clock() - one.nameless_s < PATIENCE_S:
            return True
        if not one.counted:
            self._health.count(f"refused from other writers: {self._topic}")
            one.counted = True
        self._health.problem(f"writer of {self._topic}", reason, ERROR)
        return self._claim.may_succeed(one.gid)

    def _pass_on(self, msg: Any) -> None:
        meant, ours = getattr(msg, "robot_id", ""), self._robot_id
        if meant and ours and meant != ours:
            self._health.count(f"refused for another robot: {self._topic}")
            self._health.problem(f"robot of {self._topic}", f"for robot {meant!r}, this one is {ours!r}", ERROR)
            return
        self._callback(msg)
