"""A topic that several robots share: of each robot the messages of one process count. No ROS."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from engram.core.claims import PARTICIPANT, REMEMBERED_S, UNKNOWN, Writer
from engram.runtime.health import ERROR, Health

ROBOTS = 16
"""Robots that one process writes for at most: who makes up names stays with so many."""
ANYWHERE = "/*/"
"""How the name of a node begins that is meant in any namespace."""


class RobotTopic:
    """Passes on the messages of each robot that come from the first process that wrote for it, while that is there.

    Unlike :class:`engram.runtime.bound_topic.BoundTopic` nothing waits: robots send again what was refused.

    Args:
        topic: its name.
        writers: the publishers that are there now.
        nodes: full names of the nodes that may write, or such as /*/policy_node, of any namespace; none: all may.
        callback: takes the messages; each has a ``robot_id``.
        health: where refusals are counted and named.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        topic: str,
        writers: Callable[[], Sequence[Writer]],
        nodes: Sequence[str],
        callback: Callable[[Any], None],
        health: Health,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topic, self._writers, self._nodes = topic, writers, tuple(nodes)
        self._callback, self._health, self._clock = callback, health, clock
        self._holders: dict[str, bytes] = {}  # robot -> the process that writes for it
        self._there: dict[bytes, str] = {}  # process -> its node
        self._asked_s = float("-inf")  # when that was asked: a flood must not become a flood of questions

    def take(self, msg: Any, gid: bytes) -> None:
        """Take a message of the writer ``gid``."""
        reason = self._refusal(msg.robot_id, gid[:PARTICIPANT])
        if not reason:
            self._callback(msg)
        elif reason != UNKNOWN:
            self._health.count(f"refused from other writers: {self._topic}")
            self._health.problem(f"writer of {self._topic}", f"for robot {msg.robot_id!r} {reason}", ERROR)

    def _refusal(self, robot: str, process: bytes) -> str:
        """Return why ``process`` does not write for ``robot``; empty: it does, from now on."""
        holder = self._holders.get(robot)
        if holder == process:
            return ""
        if self._clock() - self._asked_s > REMEMBERED_S:
            self._there = {writer.gid[:PARTICIPANT]: writer.node for writer in self._writers()}
            self._asked_s = self._clock()
        who = self._there.get(process, "")
        if holder in self._there:
            return f"from {who or 'an unknown node'}, but {self._there[holder] or 'another process'} writes it"
        if self._nodes and not who:
            return UNKNOWN
        if self._nodes and not any(_is_meant(name, who) for name in self._nodes):
            return f"from {who}, expected {' or '.join(self._nodes)}"
        if sum(one == process for one in self._holders.values()) >= ROBOTS:
            return f"from {who or 'an unknown node'}, which writes for {ROBOTS} others"
        self._holders[robot] = process
        return ""


def _is_meant(name: str, who: str) -> bool:
    anywhere = name.startswith(ANYWHERE)
    return who.rpartition("/")[2] == name.removeprefix(ANYWHERE) if anywhere else who == name
