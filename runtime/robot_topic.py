"""A topic that several robots share: of each robot the messages of one process count. No ROS."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from engram.core.claims import PARTICIPANT, REMEMBERED_S, UNKNOWN, Writer, WriterClaim
from engram.runtime.health import ERROR, Health

ROBOTS = 16
"""Robots that one process writes for at most: who makes up names stays with so many."""
LONGEST_ID = 256
"""A robot is told apart from others by so many characters: its name is kept before its message is checked."""


class RobotTopic:
    """Passes on the messages of each robot that its own claim lets through, see :class:`WriterClaim`.

    Unlike :class:`engram.runtime.bound_topic.BoundTopic` nothing waits: robots send again what was refused.

    Args:
        topic: its name.
        writers: the publishers that are there now.
        nodes: the nodes that may write, as of :class:`WriterClaim`.
        callback: takes the messages; each has a ``robot_id``.
        health: where refusals are counted and named.
        clock: monotonic seconds.
        checks: raise InvalidInputError for a message that is wrong, where it would count.
    """

    def __init__(
        self,
        topic: str,
        writers: Callable[[], Sequence[Writer]],
        nodes: Sequence[str],
        callback: Callable[[Any], None],
        health: Health,
        clock: Callable[[], float] = time.monotonic,
        *,
        checks: Sequence[Callable[[Any], None]] = (),
    ) -> None:
        self._topic, self._writers, self._nodes = topic, writers, tuple(nodes)
        self._callback, self._health, self._clock, self._checks = callback, health, clock, checks
        self._claims: dict[str, tuple[bytes, WriterClaim]] = {}  # robot -> the process that writes for it, its claim
        self._there: Sequence[Writer] = ()
        self._asked_s = float("-inf")  # when that was asked: a flood must not become a flood of questions

    def take(self, msg: Any, gid: bytes) -> None:
        """Take a message of the writer ``gid``."""
        robot = msg.robot_id[:LONGEST_ID]
        reason = self._refusal(robot, gid)
        if not reason:
            for check in self._checks:
                check(msg)
            self._callback(msg)
        elif reason != UNKNOWN:
            self._health.count(f"refused from other writers: {self._topic}")
            self._health.problem(f"writer of {self._topic}", f"for robot {robot!r} {reason}", ERROR)

    def _refusal(self, robot: str, gid: bytes) -> str:
        """Return why the writer ``gid`` does not write for ``robot``; empty: its process does, from now on."""
        process = gid[:PARTICIPANT]
        if robot in self._claims and self._claims[robot][0] == process:
            return ""
        if self._clock() - self._asked_s > REMEMBERED_S:
            self._ask()
        if sum(one == process for one, _ in self._claims.values()) >= ROBOTS:
            who = next((one.node for one in self._there if one.gid[:PARTICIPANT] == process), "")
            return f"from {who or 'an unknown node'}, which writes for {ROBOTS} others"
        _, claim = self._claims.get(robot) or (b"", WriterClaim(lambda: self._there, self._nodes, self._clock))
        reason = claim.refusal(gid)
        if not reason:
            self._claims[robot] = process, claim
        return reason

    def _ask(self) -> None:
        """Ask who is there, and forget the claims of those that are gone."""
        self._there, self._asked_s = self._writers(), self._clock()
        there = {one.gid[:PARTICIPANT] for one in self._there}
        self._claims = {robot: held for robot, held in self._claims.items() if held[0] in there}
