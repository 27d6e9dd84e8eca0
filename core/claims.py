"""One writer a topic: who moves the robot is one known process, and a second one is refused and named.

The same rule as a claimed command interface in ros2_control. It keeps out a node that was started twice, a stray
recording, and whoever else publishes on the robot's topics. It is no protection against a process that forges its
identity on the wire: that takes SROS 2.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

PARTICIPANT = 12
"""Length of the part of a DDS identifier (GUID) that all writers of one process share [bytes]."""
REMEMBERED_S = 0.5
"""How long a refusal holds before the graph is asked again [s]: a flood must not become a flood of questions."""
REMEMBERED = 64
"""Refused writers that are remembered at most."""
ANYWHERE = "/*/"
"""How the name of a node begins that is meant in any namespace."""
UNKNOWN = "its node is not known yet"
"""Reason of a refusal that soon passes: DDS knows the writer sooner than ROS knows the node."""


@dataclass(frozen=True, slots=True)
class Writer:
    """One publisher of a topic."""

    gid: bytes
    node: str
    """Full name of its node, such as /r1/policy_node; empty: not known yet."""


class WriterClaim:
    """Decides whose messages on one topic count: those of the process that claimed it first, while it is there.

    Args:
        writers: the publishers that are there now.
        nodes: full names of the nodes that may be the writer, one at a time, or such as /*/policy_node, in any
            namespace; none: the first that writes. Where two processes call themselves by the same one, neither may
            begin: which is the true one cannot be told.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        writers: Callable[[], Sequence[Writer]],
        nodes: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writers, self._nodes, self._clock = writers, tuple(nodes), clock
        self._holder = b""  # of the process; empty: nobody has claimed the topic
        self._holder_name = ""
        self._refused: dict[bytes, tuple[float, str, bool]] = {}  # process -> until when, why, may it succeed

    def refusal(self, gid: bytes) -> str:
        """Return why a message of the writer ``gid`` does not count; empty: it does."""
        process = gid[:PARTICIPANT]
        if process == self._holder:
            return ""
        until, reason, _ = self._refused.get(process, (0.0, "", False))
        if self._clock() < until:
            return reason
        there = {writer.gid[:PARTICIPANT]: writer.node for writer in self._writers()}
        who = there.get(process, "")
        reason = self._reason(process, who, there)
        if reason == UNKNOWN:
            self._refused.pop(process, None)  # the name that it had is gone, and what it might have become with it
        elif reason:
            if len(self._refused) >= REMEMBERED:
                self._refused.clear()
            succeeds = bool(who) and _is_meant(who, self._nodes or (self._holder_name,))
            self._refused[process] = (self._clock() + REMEMBERED_S, reason, succeeds)
        return reason

    def may_succeed(self, gid: bytes) -> bool:
        """Tell whether the writer ``gid``, which was just refused, may claim the topic when another process is gone.

        It bears a right name, as a node does that was killed and started again: DDS misses the dead one only later.
        """
        return self._refused.get(gid[:PARTICIPANT], (0.0, "", False))[2]

    def is_there(self, gid: bytes) -> bool:
        """Tell whether the process of the writer ``gid`` still has a publisher of the topic."""
        return any(writer.gid[:PARTICIPANT] == gid[:PARTICIPANT] for writer in self._writers())

    def _reason(self, process: bytes, who: str, there: Mapping[bytes, str]) -> str:
        """Return why ``process``, whose node is ``who``, is not the writer; empty: it is from now on."""
        if self._holder in there:
            self._holder_name = there[self._holder] or self._holder_name  # it may have become known meanwhile
            return f"from {who or 'an unknown node'}, but {self._holder_name or 'another process'} writes it"
        if self._nodes:
            if not who:
                return UNKNOWN
            if not _is_meant(who, self._nodes):
                return f"from {who}, expected {' or '.join(self._nodes)}"
            twins = sum(node == who for node in there.values())
            if twins > 1:
                return f"{twins} processes call themselves {who}; it counts when one is left"
        self._holder, self._holder_name = process, who
        self._refused.pop(process, None)
        return ""


def _is_meant(who: str, nodes: Sequence[str]) -> bool:
    """Tell whether the node ``who`` is one of ``nodes``."""
    return who in nodes or f"{ANYWHERE}{who.rpartition('/')[2]}" in nodes
