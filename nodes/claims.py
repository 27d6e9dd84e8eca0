"""Subscriptions whose messages count from one writer alone; see :class:`engram.core.claims.WriterClaim`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rclpy.qos import QoSProfile

from engram.core.claims import UNKNOWN, Writer, WriterClaim
from engram.nodes.base import EngramNode
from engram.runtime.health import ERROR

RETRY_S = 0.1
"""Time between two looks whether a message that waits may be taken by now [s]."""
PATIENCE_S = 5.0
"""A writer whose node stays unknown for so long is refused [s]."""


class _Bound:
    """One subscription: passes on what the claim lets through, and what waits for its writer's name."""

    def __init__(self, node: EngramNode, topic: str, callback: Callable[[Any], None]) -> None:
        self._node, self._topic, self._callback = node, topic, callback
        self._claim = WriterClaim(self._writers, _writer_of(node, topic))
        self._waiting: tuple[Any, bytes, float] | None = None  # newest message, its writer, since when [monotonic s]

    def take(self, msg: Any, info: Any) -> None:
        """Take a message with what rclpy knows of its way."""
        self._judge(msg, bytes(info["publisher_gid"]["data"]), time.monotonic())

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
        if reason == UNKNOWN and time.monotonic() - since < PATIENCE_S:
            self._waiting = (msg, gid, since)
            return
        if not again:
            self._node.health.count(f"refused from other writers: {self._topic}")
        self._node.health.problem(f"writer of {self._topic}", reason, ERROR)
        if self._claim.may_succeed(gid):  # what is latched comes only once
            self._waiting = (msg, gid, since)

    def _pass_on(self, msg: Any) -> None:
        meant, ours = getattr(msg, "robot_id", ""), self._node.config.robot_id
        if meant and meant != ours:
            self._node.health.count(f"refused for another robot: {self._topic}")
            self._node.health.problem(f"robot of {self._topic}", f"for robot {meant!r}, this one is {ours!r}", ERROR)
            return
        self._callback(msg)

    def _writers(self) -> list[Writer]:
        return [
            Writer(bytes(found.endpoint_gid), _full_name(found.node_namespace, found.node_name))
            for found in self._node.get_publishers_info_by_topic(self._topic)
        ]


def subscribe_bound(
    node: EngramNode, msg_type: type, topic: str, callback: Callable[[Any], None], profile: QoSProfile
) -> None:
    """Subscribe for as long as ``node`` is active; ``callback`` gets the messages of one writer."""
    bound = _Bound(node, topic, callback)
    node.subscribe(msg_type, topic, bound.take, profile)
    node.every(RETRY_S, bound.retry, topic)


def _writer_of(node: EngramNode, topic: str) -> str:
    name = node.config.writer(topic)
    return _full_name(node.get_namespace(), name) if name else ""


def _full_name(namespace: str, name: str) -> str:
    # rclpy's words for a node that it knows a topic of, but not yet the name
    return "" if name.startswith("_NODE_NAME_UNKNOWN_") else f"{namespace.rstrip('/')}/{name}"
