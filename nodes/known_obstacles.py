"""Keeps a motion barrier informed of the obstacles in memory/graph."""

from __future__ import annotations

from collections.abc import Sequence

from rclpy.client import Client
from std_srvs.srv import Trigger

from engram.core.collision import Obstacle
from engram.core.errors import InvalidInputError
from engram.core.pipeline import CommandPipeline
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.claims import subscribe_bound
from engram.runtime.health import ERROR
from engram.runtime.known_obstacles import TOPIC, KnownObstacles
from engram_interfaces.msg import SceneGraphUpdate

AGAIN = "memory/publish_graph"
REFUSALS = f"problems {TOPIC}"
"""Counts what is refused of the topic's one writer: too large, stamped ahead, or no graph."""
LOOK_S = 0.05
"""Time between two looks at that count [s]: half a control step."""
RETRY_S = 2.0
"""How long to wait before the full graph is asked for again [s]."""
UNKNOWN = "obstacles_unknown"
"""Why the robot holds until the memory has told its obstacles."""


class ObstacleFeed:
    """Reads memory/graph for ``node`` and asks for all of it there at first, and where a change was lost.

    Nobody drives meanwhile: an obstacle that is not known would be driven into. What was refused counts as lost. An
    answer of a service would count from whoever offers it; the topic has one writer.

    Raises:
        InvalidInputError: the robot has no barrier that could keep it away from obstacles.
    """

    def __init__(self, node: EngramNode, pipeline: CommandPipeline) -> None:
        barrier = pipeline.filter.barrier
        if barrier is None:
            raise InvalidInputError(f"memory_obstacles: true, but robot {pipeline.robot.name!r} has no motion barrier")
        self._barrier, self._pipeline, self._health = barrier, pipeline, node.health
        self._known = KnownObstacles(pipeline.robot, barrier.obstacles_max, self._set)
        self._again: Client = node.create_client(Trigger, AGAIN)
        self._refused = self._health.counts[REFUSALS]
        subscribe_bound(node, SceneGraphUpdate, TOPIC, self._take, qos.GRAPH)
        node.every(LOOK_S, self._look, TOPIC)
        node.every(RETRY_S, self._ask, AGAIN)
        self._told(ask=True)

    def _set(self, obstacles: Sequence[Obstacle]) -> None:
        self._barrier.set_obstacles(obstacles)
        self._health.counts["obstacles"] = len(obstacles)

    def _take(self, msg: SceneGraphUpdate) -> None:
        self._told(ask=self._known.take(msg.boot_id, messages.graph_from_msg(msg)))

    def _look(self) -> None:
        if (refused := self._health.counts[REFUSALS]) != self._refused:
            self._refused = refused
            self._told(ask=self._known.lose())

    def _told(self, *, ask: bool) -> None:
        self._pipeline.unready = UNKNOWN if (why := self._known.unknown) else ""
        if why:
            self._health.problem("obstacles", f"{UNKNOWN}: {why}", ERROR, lasting=True)
        else:
            self._health.clear("obstacles")
        if ask:
            self._ask()

    def _ask(self) -> None:
        if self._known.lost and self._again.service_is_ready():
            self._again.remove_pending_request(self._again.call_async(Trigger.Request()))  # the topic answers
