"""Keeps a motion barrier informed of the obstacles in memory/graph."""

from __future__ import annotations

from collections.abc import Sequence

from rclpy.client import Client
from rclpy.task import Future

from engram.core.collision import Obstacle
from engram.core.contracts import MotionBarrier
from engram.core.robot import RobotConfig
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.claims import subscribe_bound
from engram.runtime.known_obstacles import KnownObstacles
from engram_interfaces.msg import SceneGraphUpdate
from engram_interfaces.srv import GetGraph

RETRY_S = 2.0
"""How long to wait before the full graph is asked for again [s]."""


class ObstacleFeed:
    """Reads memory/graph for ``node`` and asks memory/get_graph where a change was lost."""

    def __init__(self, node: EngramNode, robot: RobotConfig, barrier: MotionBarrier) -> None:
        self._barrier, self._counts = barrier, node.health.counts
        self._known, self._lost = KnownObstacles(robot, barrier.obstacles_max, self._set), False
        self._full: Client = node.create_client(GetGraph, "memory/get_graph")
        subscribe_bound(node, SceneGraphUpdate, "memory/graph", self._take, qos.GRAPH)
        node.every(RETRY_S, self._ask, "memory/get_graph")

    def _set(self, obstacles: Sequence[Obstacle]) -> None:
        self._barrier.set_obstacles(obstacles)
        self._counts["obstacles"] = len(obstacles)

    def _take(self, msg: SceneGraphUpdate) -> None:
        self._lost = not self._known.take(msg.boot_id, messages.graph_from_msg(msg))

    def _ask(self) -> None:
        if self._lost and self._full.service_is_ready():
            self._full.call_async(GetGraph.Request()).add_done_callback(self._answered)

    def _answered(self, future: Future) -> None:
        if (answer := future.result()) is not None:
            self._take(answer.graph)
