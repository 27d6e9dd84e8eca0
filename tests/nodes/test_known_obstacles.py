"""Whether the safety node knows the obstacles: it asks for them as soon as somebody can be asked."""

from types import SimpleNamespace
from typing import Any

from engram.nodes.known_obstacles import AGAIN, UNKNOWN, ObstacleFeed
from engram.runtime.health import Health
from tests.core.gantry import GANTRY


def test_the_memory_is_asked_for_its_obstacles_at_once():
    asked: list[str] = []
    client = SimpleNamespace(
        service_is_ready=lambda: True, call_async=lambda _: asked.append(AGAIN), remove_pending_request=lambda _: None
    )
    node: Any = SimpleNamespace(
        health=Health(), create_client=lambda kind, name: client, subscribe=lambda *_: None, every=lambda *_: None,
        check_stamp=None, get_namespace=lambda: "/",
        config=SimpleNamespace(robot_id="robot0", writers_of=lambda topic: ("memory_node",)),
    )  # fmt: skip
    barrier = SimpleNamespace(obstacles_max=8, set_obstacles=lambda obstacles: None)
    pipeline: Any = SimpleNamespace(filter=SimpleNamespace(barrier=barrier), robot=GANTRY, unready="")
    ObstacleFeed(node, pipeline)
    assert asked == [AGAIN] and pipeline.unready == UNKNOWN
