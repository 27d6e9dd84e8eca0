"""Keeps a motion barrier informed of the obstacles in memory/graph."""

from __future__ import annotations

from collections.abc import Sequence

from rclpy.client import Client
from rclpy.task import Future

from engram.core.collision import Obstacle
from engram.core.errors import InvalidInputError
from engram.core.pipeline import CommandPipeline
from engram.core.types import GraphUpdate
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.claims import subscribe_bound
from engram.runtime.bounds import check_sizes
from engram.runtime.health import ERROR
from engram.runtime.known_obstacles import BASE, KnownObstacles
from engram_interfaces.msg import SceneGraphUpdate
from engram_interfaces.srv import GetGraph

TOPIC = "memory/graph"
REFUSALS = f"problems {TOPIC}"
"""Counts what is refused of the topic and of the full graph: too large, stamped ahead, or no graph."""
LOOK_S = 0.05
"""Time between two looks at that count [s]: half a control step."""
RETRY_S = 2.0
"""How long to wait before the full graph is asked for again [s]."""
UNKNOWN = "obstacles_unknown"
"""Why the robot holds until the memory has told its obstacles."""


class ObstacleFeed:
    """Reads memory/graph for ``node`` and asks memory/get_graph at first, and where a change was lost.

    Nobody drives meanwhile: an obstacle that is not known would be driven into. What was refused counts as lost.

    Raises:
        InvalidInputError: the robot has no barrier that could keep it away from obstacles.
    """

    def __init__(self, node: EngramNode, pipeline: CommandPipeline) -> None:
        barrier = pipeline.filter.barrier
        if barrier is None:
            raise InvalidInputError(f"memory_obstacles: true, but robot {pipeline.robot.name!r} has no motion barrier")
        self._barrier, self._pipeline, self._health = barrier, pipeline, node.health
        self._known = KnownObstacles(pipeline.robot, barrier.obstacles_max, self._set)
        self._full: Client = node.create_client(GetGraph, "memory/get_graph")
        self._on_full = node.guarded(TOPIC, self._answered)
        self._refused = self._health.counts[REFUSALS]
        self._lost = True  # what there is, is not known
        self._tell()
        subscribe_bound(node, SceneGraphUpdate, TOPIC, self._take, qos.GRAPH)
        node.every(LOOK_S, self._look, "memory/get_graph")
        node.every(RETRY_S, self._ask, "memory/get_graph")

    def _set(self, obstacles: Sequence[Obstacle]) -> None:
        self._barrier.set_obstacles(obstacles)
        self._health.counts["obstacles"] = len(obstacles)

    def _tell(self) -> None:
        why = "memory/get_graph has not told them yet" if self._lost else ""
        if not why and (frame := self._known.elsewhere):
            why = f"{TOPIC} has objects in frame {frame[:100]!r}, expected {BASE!r}: see frame of memory_node"
        self._pipeline.unready = UNKNOWN if why else ""
        if why:
            self._health.problem("obstacles", f"{UNKNOWN}: {why}", ERROR, lasting=True)
        else:
            self._health.clear("obstacles")

    def _know(self, boot_id: str, update: GraphUpdate) -> None:
        self._lost = not self._known.take(boot_id, update)
        self._tell()

    def _take(self, msg: SceneGraphUpdate) -> None:
        before = self._lost
        self._know(msg.boot_id, messages.graph_from_msg(msg))
        if not before:
            self._ask()

    def _look(self) -> None:
        if (refused := self._health.counts[REFUSALS]) == self._refused:
            return
        before, self._refused, self._lost = self._lost, refused, True
        self._known.lose()
        self._tell()
        if not before:
            self._ask()

    def _ask(self) -> None:
        if self._lost and self._full.service_is_ready():
            self._full.call_async(GetGraph.Request()).add_done_callback(self._on_full)

    def _answered(self, future: Future) -> None:
        if (answer := future.result()) is not None:
            check_sizes(answer.graph)
            self._know(answer.graph.boot_id, messages.graph_from_msg(answer.graph))
