"""The memory's scene graph, as a node from outside the node set hears it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rclpy.client import Client
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from std_srvs.srv import Trigger

from engram.core.types import SceneNode
from engram.nodes import messages, qos
from engram.nodes.claims import hear_bound
from engram.runtime.graph_mirror import GraphMirror
from engram.runtime.health import Health
from engram_interfaces.msg import SceneGraphUpdate

RETRY_S = 1.0
"""Time between two requests for all of the graph [s]."""
QUIET_S, GONE_S = 2.0, 5.0
"""A memory that said nothing for so long is asked whether it is there, and counts as gone [s]."""


class HeardScene:
    """Follows memory/graph of one of ``writers``, and asks for all of it where a change was lost."""

    def __init__(self, node: Node, health: Health, writers: Sequence[str]) -> None:
        self._mirror, self._lost, self._heard_s = GraphMirror(), True, -GONE_S
        hear_bound(node, health, writers, SceneGraphUpdate, "memory/graph", self._take, qos.GRAPH)
        self._again: Client = node.create_client(Trigger, "memory/publish_graph")
        node.create_timer(RETRY_S, self._ask, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def nodes(self) -> Sequence[SceneNode]:
        """Return what the memory knows; nothing while that is not known."""
        return () if self._lost or self._quiet_s() > GONE_S else tuple(self._mirror.nodes.values())

    def _quiet_s(self) -> float:
        return time.monotonic() - self._heard_s

    def _take(self, msg: SceneGraphUpdate) -> None:
        self._heard_s = time.monotonic()
        self._lost = not self._mirror.apply(msg.boot_id, messages.graph_from_msg(msg))

    def _ask(self) -> None:
        if (self._lost or self._quiet_s() > QUIET_S) and self._again.service_is_ready():
            self._again.remove_pending_request(self._again.call_async(Trigger.Request()))  # the topic answers
