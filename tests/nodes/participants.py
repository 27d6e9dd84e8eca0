"""A node under test, and others in DDS participants of their own, as they are on a robot."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import rclpy
from rclpy.executors import SingleThreadedExecutor

from engram.nodes.base import EngramNode

ASKED_AGAIN_S = 0.05
"""A condition that publishes does so no more often: else it would drive what others sent out of the queues [s]."""


class Graph:
    """A node under test in the default context, and others in participants of their own."""

    def __init__(self) -> None:
        self.contexts: list[Any] = []
        self.nodes: list[Any] = []

    def run(self, make: Callable[[], EngramNode], *words: str) -> Any:
        rclpy.init(args=["--ros-args", *(part for word in words for part in ("-p", word))])
        self.node = make()
        self.executor = SingleThreadedExecutor()
        self.executor.add_node(self.node)
        self.node.trigger_configure()
        self.node.trigger_activate()
        assert self.node.state == "active"
        return self.node

    def writer(self, name: str, kind: type, topic: str, profile: Any, namespace: str = "/") -> Any:
        """Return a publisher of a node ``name``, once the node under test knows it."""
        self.contexts.append(rclpy.Context())
        rclpy.init(context=self.contexts[-1])
        node = rclpy.create_node(name, context=self.contexts[-1], namespace=namespace)
        self.nodes.append(node)
        made = node.create_publisher(kind, topic, profile)
        self.until(lambda: made.get_subscription_count() and name in self.node.get_node_names())
        return made

    def until(self, condition: Callable[[], Any], timeout_s: float = 120.0) -> None:
        end = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end, self.said()
            asked_again_at = time.monotonic() + ASKED_AGAIN_S
            while (left_s := asked_again_at - time.monotonic()) > 0:
                self.executor.spin_once(timeout_sec=left_s)

    def said(self) -> str:
        return self.node.health.last_problem

    def close(self) -> None:
        self.node.close()
        self.executor.shutdown()
        for node in (self.node, *self.nodes):
            node.destroy_node()
        for context in self.contexts:
            rclpy.try_shutdown(context=context)
        rclpy.try_shutdown()
