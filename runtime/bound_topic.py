"""A topic whose messages count from one writer alone: what is taken, what waits and what is refused. No ROS."""

from __future__ import annotations

import time
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
        robot_id: this robot; a message that names another one is refused.
        callback: takes the messages.
        health: where refusals are counted and named.
        clock: tells the time that waiting is measured in [s].
    """

    def __init__(
        self,
        topic: str,
        claim: WriterClaim,
        robot_id: str,
        callback: Callable[[Any], None],
        health: Health,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topic, self._claim, self._robot_id = topic, claim, robot_id
        self._callback, self._health, self._clock = callback, health, clock
        self._waiting: tuple[Any, bytes, float] | None = None  # newest message, its writer, since when [monotonic s]

    def take(self, msg: Any, gid: bytes) -> None:
        """Take a message of the writer ``gid``."""
        self._judge(msg, gid, self._clock())

    def retry(self) -> None:
        """Look again whether a message that waits may be taken by now."""
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            self._judge(*waiting, again=True)

    def _judge(self, msg: Any, gid: bytes, since: float, *, again: bool = False) -> None:
        reason = self._claim.refusal(gid)
        if not reason:
            self._waiting = None  # an older one
            self._pass_on(msg)
            return
        if reason == UNKNOWN and self._clock() - since < PATIENCE_S:
            self._waiting = (msg, gid, since)
            return
        if not again:
            self._health.count(f"refused from other writers: {self._topic}")
        self._health.problem(f"writer of {self._topic}", reason, ERROR)
        if self._claim.may_succeed(gid):  # what is latched comes only once
            self._waiting = (msg, gid, since)

    def _pass_on(self, msg: Any) -> None:
        meant, ours = getattr(msg, "robot_id", ""), self._robot_id
        if meant and meant != ours:
            self._health.count(f"refused for another robot: {self._topic}")
            self._health.problem(f"robot of {self._topic}", f"for robot {meant!r}, this one is {ours!r}", ERROR)
            return
        self._callback(msg)
