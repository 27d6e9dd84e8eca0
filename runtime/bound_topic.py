"""A topic whose messages count from one writer alone: what is taken, what waits and what is refused. No ROS."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engram.core.claims import UNKNOWN, WriterClaim
from engram.core.errors import InvalidInputError
from engram.runtime.health import ERROR, Health

PATIENCE_S = 5.0
"""A writer whose node stays unknown for so long is refused [s]."""
WRITERS = 8
"""Writers whose messages wait at most."""
WAITING_MAX = 128 << 20
"""Most that waits, of all writers together [bytes]; of the one that takes most the oldest goes first."""


@dataclass(frozen=True)
class Taker:
    """Callback of a subscription that asks who wrote a message before it, and nobody else, checks the message.

    What is wrong with what a stranger says is no problem of the topic: others take that as a message that was lost.
    """

    take: Callable[[Any, bytes], None]
    """Takes a message and the identifier of its writer."""

    def __call__(self, msg: Any, info: Any) -> None:
        """Take a message and what ROS knows of its way."""
        self.take(msg, bytes(info["publisher_gid"]["data"]))


@dataclass(slots=True)
class _Waiting:
    """A message that does not count yet."""

    msg: Any
    """Or why it is refused: nothing else is kept of a message that is wrong."""
    gid: bytes
    """Its writer."""
    nameless_s: float | None = None
    """Since when its writer's node is unknown, on the clock of its topic; None: it is known."""
    counted: bool = False
    """It is among those that were refused."""
    size: int = 0
    """What it takes [bytes]."""


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
        checks: raise InvalidInputError for a message that is wrong when it arrives; told when it would count.
        latched: what a writer says comes once, so it waits for the writer's name for as long as the writer is there.
        size_of: tells how much RAM a message takes [bytes].
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
        checks: Sequence[Callable[[Any], None]] = (),
        latched: bool = False,
        size_of: Callable[[Any], int] = lambda msg: 0,
    ) -> None:
        self._topic, self._claim, self._robot_id = topic, claim, robot_id
        self._callback, self._health, self._clock = callback, health, clock
        self._kept, self._checks, self._latched, self._size_of = kept, checks, latched, size_of
        self._waiting: dict[bytes, deque[_Waiting]] = {}  # by writer: none pushes out what another one said

    def take(self, msg: Any, gid: bytes) -> None:
        """Take a message of the writer ``gid``."""
        reason, one = self._claim.refusal(gid), _Waiting(self._checked(msg), gid)
        if not reason:
            self._line_of(gid).append(one)
            self.retry()  # what waits of its writer comes first
        elif self._may_wait(one, reason, self._may_count_later(gid, reason)):
            one.size = 0 if isinstance(one.msg, InvalidInputError) else self._size_of(msg)
            self._line_of(gid).append(one)
            self._bound()

    def retry(self) -> None:
        """Look again whether the messages that wait may be taken by now."""
        for gid, line in list(self._waiting.items()):
            reason = self._claim.refusal(gid)  # each writer is judged once: what waits of it stays in order
            later = bool(reason) and self._may_count_later(gid, reason)
            for _ in range(len(line)):
                one = line.popleft()
                if not reason:
                    self._pass_on(one.msg)
                elif self._may_wait(one, reason, later):
                    line.append(one)
            if not line:
                self._waiting.pop(gid, None)

    def _line_of(self, gid: bytes) -> deque[_Waiting]:
        """Return where the messages of the writer ``gid`` wait; where too many wait, a stranger goes first."""
        if gid not in self._waiting and len(self._waiting) >= WRITERS:
            strangers = (one for one in self._waiting if not self._claim.may_succeed(one))
            del self._waiting[next(strangers, next(iter(self._waiting)))]
        return self._waiting.setdefault(gid, deque(maxlen=self._kept))

    def _bound(self) -> None:
        """Let the oldest messages go of the writer whose take most, while all together take too much."""
        sizes = {gid: sum(one.size for one in line) for gid, line in self._waiting.items()}
        while sum(sizes.values()) > WAITING_MAX:
            most = max(sizes, key=sizes.__getitem__)
            sizes[most] -= self._waiting[most].popleft().size
            self._health.count(f"refused from other writers: {self._topic}")

    def _may_count_later(self, gid: bytes, reason: str) -> bool:
        """Tell whether what is refused for ``reason`` may count when the patience is over: what is latched comes once.

        The writer waits for its predecessor to go, or, where it is there, for its own name. What a writer said that is
        gone itself counts no more.
        """
        return self._claim.may_succeed(gid) or (self._latched and reason == UNKNOWN and self._claim.is_there(gid))

    def _may_wait(self, one: _Waiting, reason: str, later: bool) -> bool:
        """Tell whether a message that is refused for ``reason`` waits; else, or when it takes long, name the reason."""
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
        return later

    def _checked(self, msg: Any) -> Any:
        try:
            for check in self._checks:
                check(msg)
        except InvalidInputError as error:
            return error.with_traceback(None)  # which would keep the message
        return msg

    def _pass_on(self, msg: Any) -> None:
        if isinstance(msg, InvalidInputError):
            raise msg
        meant, ours = getattr(msg, "robot_id", ""), self._robot_id
        if meant and ours and meant != ours:
            self._health.count(f"refused for another robot: {self._topic}")
            self._health.problem(f"robot of {self._topic}", f"for robot {meant!r}, this one is {ours!r}", ERROR)
            return
        self._callback(msg)
