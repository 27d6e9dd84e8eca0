"""Subscriptions whose messages count from one writer alone; see :class:`engram.core.claims.WriterClaim`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.qos import QoSProfile

from engram.core.claims import Writer, WriterClaim
from engram.nodes.base import EngramNode
from engram.runtime.bound_topic import BoundTopic

RETRY_S = 0.1
"""Time between two looks whether a message that waits may be taken by now [s]."""


def subscribe_bound(
    node: EngramNode, msg_type: type, topic: str, callback: Callable[[Any], None], profile: QoSProfile
) -> None:
    """Subscribe for as long as ``node`` is active; ``callback`` gets the messages of one writer."""
    claim = WriterClaim(lambda: _writers(node, topic), _writer_of(node, topic))
    bound = BoundTopic(topic, claim, node.config.robot_id, callback, node.health)

    def take(msg: Any, info: Any) -> None:
        bound.take(msg, bytes(info["publisher_gid"]["data"]))

    node.subscribe(msg_type, topic, take, profile)
    node.every(RETRY_S, bound.retry, topic)


def _writers(node: EngramNode, topic: str) -> list[Writer]:
    return [
        Writer(bytes(found.endpoint_gid), _full_name(found.node_namespace, found.node_name))
        for found in node.get_publishers_info_by_topic(topic)
    ]


def _writer_of(node: EngramNode, topic: str) -> str:
    name = node.config.writer(topic)
    return _full_name(node.get_namespace(), name) if name else ""


def _full_name(namespace: str, name: str) -> str:
    # rclpy's words for a node that it knows a topic of, but not yet the name
    return "" if name.startswith("_NODE_NAME_UNKNOWN_") else f"{namespace.rstrip('/')}/{name}"
