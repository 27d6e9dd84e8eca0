"""Subscriptions whose messages count from one writer alone; see :class:`engram.core.claims.WriterClaim`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from posixpath import join
from typing import Any

from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.qos import QoSProfile

from engram.core.claims import Writer, WriterClaim
from engram.core.errors import EngramError
from engram.nodes import qos
from engram.nodes.base import EngramNode
from engram.runtime.bound_topic import BoundTopic, Taker
from engram.runtime.bounds import check_sizes, size_of
from engram.runtime.health import Health
from engram.runtime.robot_topic import RobotTopic

RETRY_S = 0.1
"""Time between two looks whether a message that waits may be taken by now [s]."""


def subscribe_bound(
    node: EngramNode,
    msg_type: type,
    topic: str,
    callback: Callable[[Any], None],
    profile: QoSProfile,
    *,
    every: bool = False,
    shared: bool = False,
) -> None:
    """Subscribe for as long as ``node`` is active; ``callback`` gets the messages of one writer.

    Of a writer that waits until its killed predecessor is gone the newest message waits, or, where ``every`` one
    counts, as many as ``profile`` keeps. Where a topic is ``shared``, those for other robots are no mistake.
    """
    claim = _claim(node, topic, node.config.writers_of(topic))
    kept = profile.depth if every else 1
    robot_id, checks = "" if shared else node.config.robot_id, (check_sizes, node.check_stamp)
    waits: Any = {"kept": kept, "latched": qos.is_latched(profile), "size_of": size_of}
    bound = BoundTopic(topic, claim, robot_id, callback, node.health, checks=checks, **waits)
    node.subscribe(msg_type, topic, Taker(bound.take), qos.beside_strangers(profile))
    node.every(RETRY_S, bound.retry, topic)


def by_robot(node: EngramNode, topic: str, callback: Callable[[Any], None]) -> Callable[[Any, Any], None]:
    """Return what to subscribe to ``topic`` with: ``callback`` gets the messages of one writer for each robot."""
    nodes = [_full_name(node.get_namespace(), name) for name in node.config.writers_of(topic)]
    checks = check_sizes, node.check_stamp
    return Taker(RobotTopic(topic, lambda: writers_of(node, topic), nodes, callback, node.health, checks=checks).take)


def hear_bound(
    node: Node,
    health: Health,
    writers: Sequence[str],
    msg_type: type,
    topic: str,
    callback: Callable[[Any], None],
    profile: QoSProfile,
) -> None:
    """Subscribe a ``node`` from outside for one of ``writers``, nodes of its namespace or, with a leading /, of any.

    Without any the first that writes counts. What is refused, also by ``callback``, is a problem in ``health``.
    """

    def hear(msg: Any) -> None:
        try:
            callback(msg)
        except EngramError as error:
            health.problem(topic, str(error))

    bound = BoundTopic(topic, _claim(node, topic, writers), "", hear, health, latched=qos.is_latched(profile))
    depth = max(16, profile.depth)  # room for strangers beside the newest
    told = QoSProfile(depth=depth, durability=profile.durability, reliability=profile.reliability)
    node.create_subscription(msg_type, topic, Taker(bound.take), told)
    node.create_timer(RETRY_S, bound.retry, clock=Clock(clock_type=ClockType.STEADY_TIME))


def _claim(node: Node, topic: str, writers: Sequence[str]) -> WriterClaim:
    nodes = [_full_name(node.get_namespace(), name) for name in writers]
    return WriterClaim(lambda: writers_of(node, topic), nodes)


def writers_of(node: Node, topic: str) -> list[Writer]:
    """Return the publishers of ``topic`` that are there now."""
    return [
        Writer(bytes(found.endpoint_gid), _full_name(found.node_namespace, found.node_name))
        for found in node.get_publishers_info_by_topic(topic)
    ]


def _full_name(namespace: str, name: str) -> str:
    # rclpy's words for a node that it knows a topic of, but not yet the name
    return "" if name.startswith("_NODE_NAME_UNKNOWN_") else join(namespace, name)
