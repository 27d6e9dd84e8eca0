"""A topic whose messages count from one writer alone: what is taken, what waits and what is refused. No ROS."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from engram.core.claims import UNKNOWN, WriterClaim
from engram.runtime.health import ERROR, Health

PATIENCE_S = 5.0
"""A writer whose node stays unknown for so long is refused [s]."""


class BoundTopic:
    """Passes on what the claim lets through, and what waits for its writer's name.

    Args:
        topic: its name.
        claim: decides whose messages count.
        robot_id: this robot; a message that names another one is refused. Empty: not known, and none is.
        callback: takes the messages.
        health: where refusals are counted and named.
        clock: tells the time that waiting is measured in [s].
        kept: how many messages may wait, the newest; they are passed on in their order.
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
        self._waiting: deque[tuple[Any, bytes, float]] = deque(maxlen=kept)  # message, writer, since when [monotonic s]

    def take(self, msg: Any, gid: bytes) -> None:
        """Take a message of the writer ``gid``."""
        reason, now = self._claim.refusal(gid), self._clock()
        if reason not in ("", UNKNOWN):
            self._health.count(f"refused from other writers: {self._topic}")
        if not reason or self._may_wait(reason, gid, now):
            self._waiting.append((msg, gid, now))
        if not reason:
            self.retry()  # what waits of its writer comes first

    def retry(self) -> None:
        """Look again whether the messages that wait may be taken by now."""
        # each writer is judged once: what waits of it stays in order
        reasons = {gid: self._claim.refusal(gid) for gid in {gid for _, gid, _ in self._waiting}}
        for _ in range(len(self._waiting)):
            msg, gid, since = self._waiting.popleft()
            if not reasons[gid]:
                self._pass_on(msg)
            elif self._may_wait(reasons[gid], gid, since):
                self._waiting.append((msg, gid, since))

    def _may_wait(self, reason: str, gid: bytes, since: float) -> bool:
        """Tell whether a message, refused for ``reason`` and here since then, may count later; else name the reason.

        It may where its writer's name is to come, and where the writer waits for its predecessor to go: what is latched
        comes only once.
        """
        if reason == UNKNOWN and self._clock() - since < PATIENCE_S:
            return True
        self._health.problem(f"writer of {self._topic}", reason, ERROR)
        return self._claim.may_succeed(gid)

    def _pass_on(self, msg: Any) -> None:
        meant, ours = getattr(msg, "robot_id", ""), self._robot_id
        if meant and ours and meant != ours:
            self._health.count(f"refused for another robot: {self._topic}")
            self._health.problem(f"robot of {self._topic}", f"for robot {meant!r}, this one is {ours!r}", ERROR)
            return
        self._callback(msg)
