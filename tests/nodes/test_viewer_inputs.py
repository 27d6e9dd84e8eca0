"""What the page's node listens to; whatever it draws takes the robot from nobody who drives by the page."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import rclpy
from rclpy.node import Node
from sensor_msgs.msg import Image

from engram.core.ports import free_port
from engram.core.types import GraphUpdate
from engram.nodes import image_topics, messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.executor import KeptExecutor
from engram.nodes.viewer_node import ViewerNode
from engram.runtime.health import Health
from engram.runtime.teleop import Wish
from engram.viewer.camera_topics import MOST_CAMERAS
from engram_interfaces.msg import SceneGraphUpdate
from tests.viewer.scenes import scene_node


class Eyes(ViewerNode):
    """The page's node, as far as it looks for cameras, in a graph that the test draws."""

    def __init__(self, image_transport: str = "raw") -> None:
        self.cameras, self.images, self.health, self._live = {}, {}, Health(), []
        self.config = SimpleNamespace(image_transport=image_transport)
        self.published: dict[str, int] = {}  # topic -> its publishers
        self.heard: list[str] = []

    def get_namespace(self) -> str:
        return "/r1"

    def resolve_topic_name(self, topic: str, *, only_expand: bool = False) -> str:
        return f"/r1/{topic}"

    def get_topic_names_and_types(self, no_demangle: bool = False) -> list[tuple[str, list[str]]]:
        return [(f"/r1/{topic}", ["sensor_msgs/msg/Image"]) for topic in self.published]

    def count_publishers(self, topic_name: str) -> int:
        return self.published.get(topic_name, 0)

    def subscribe(self, msg_type: type, topic: str, callback: Callable[..., None], profile: object) -> None:
        self.heard.append(topic)
        self._live.append((self.heard.remove, topic))


def color(name: str) -> str:
    return image_topics.raw_topic(name, "color")


def test_cameras_that_nobody_publishes_any_more_make_room_for_those_of_the_robot() -> None:
    node = Eyes()
    node.published = {color(f"ghost{number}"): 0 for number in range(MOST_CAMERAS)}  # names of mere subscriptions
    node._find_cameras()
    assert node.heard == []
    node.published = dict.fromkeys(node.published, 1)
    node._find_cameras()
    node._on_image("ghost1", Image())
    node.published |= {color("front"): 1, color("wrist"): 1}
    node._find_cameras()
    assert len(node.heard) == MOST_CAMERAS
    assert "front is not shown: there are 16 cameras already" in node.health.condition("active").message
    node.published = {color("ghost1"): 0, color("front"): 1, color("wrist"): 1}
    node._find_cameras()
    assert sorted(node.heard) == [color("front"), color("wrist")] == sorted(topic for _, topic in node._live)
    assert not [name for name in node.health.counts if "ghost" in name and name.startswith("images")]


def test_the_page_of_another_machine_looks_who_publishes_what_it_hears() -> None:
    node = Eyes("compressed")
    node.published = {color("front"): 1}
    node._find_cameras()
    assert node.heard == []  # nobody compresses them yet
    node.published[image_topics.compressed_topic("front", "color")] = 1
    node._find_cameras()
    assert node.heard == [image_topics.compressed_topic("front", "color")]


def test_of_a_camera_that_is_gone_no_picture_stays() -> None:
    kept: list[tuple[str, ...]] = []
    shown: list[str] = []
    page = SimpleNamespace(visitors=1, keep_cameras=kept.append, show_stopped=lambda _: None)
    nothing = SimpleNamespace(refresh=lambda: None)
    node: Any = SimpleNamespace(page=page, images={"front": Image(), "ghost": Image()}, cameras={"front": ()},
                                stopped="", graph=nothing, report=lambda key, error: pytest.fail(str(error)),
                                _show_camera=lambda name, _: shown.append(name),
                                _show_joints=nothing.refresh, _show_reports=nothing.refresh)  # fmt: skip
    ViewerNode._refresh(node)
    assert (kept, shown) == ([("front",)], ["front"])


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Iterator[rclpy.Context]:
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    made = rclpy.Context()
    rclpy.init(context=made)
    yield made
    rclpy.try_shutdown(context=made)


@pytest.fixture
def viewer(context: rclpy.Context) -> Iterator[ViewerNode]:
    """The page's node of a launch file, with one visitor."""
    node = ViewerNode.__new__(ViewerNode)
    told = ["-p", f"port:={free_port()}", "-p", "writers:=[memory/graph=memory_node]"]
    EngramNode.__init__(node, "viewer_node", context=context, cli_args=["--ros-args", *told])
    node.trigger_configure()
    node.page.server.get_clients = lambda: {0: None}  # type: ignore[assignment, dict-item, method-assign]
    node.trigger_activate()
    yield node
    node.close()
    node.destroy_node()


def spin_until(condition: Callable[[], object], *nodes: Node, seconds: float = 30.0) -> None:
    executor = KeptExecutor(context=nodes[0].context)
    for node in nodes:
        executor.add_node(node)
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        executor.spin_once(timeout_sec=0.05)
    executor.shutdown()
    assert condition()


def test_who_drives_by_the_page_is_heard_while_it_draws(viewer: ViewerNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """After half a second of silence the safety node would give the arm back to the policy."""
    drawing, driven = threading.Event(), threading.Event()
    waited: list[bool] = []

    def draw(_: object) -> None:
        drawing.set()
        waited.append(driven.wait(5.0))

    def by_hand(_: object) -> Wish:
        if drawing.is_set():
            driven.set()
        return Wish(False)

    monkeypatch.setattr(viewer.page, "by_hand", by_hand)
    monkeypatch.setattr(viewer.page, "show_stopped", draw)
    spin_until(lambda: waited, viewer)
    assert waited[0]


@pytest.mark.parametrize(("name", "known"), [("memory_node", ["object/1"]), ("stranger", [])])
def test_the_scene_comes_from_the_memory_node_alone(
    viewer: ViewerNode, context: rclpy.Context, name: str, known: list[str]
) -> None:
    writer = Node(name, context=context)
    told = writer.create_publisher(SceneGraphUpdate, "memory/graph", qos.GRAPH)
    told.publish(messages.graph_to_msg(GraphUpdate(0, 1, True, (scene_node("object/1", "red cube", 0.5),)), "boot"))
    shown: list[list[str]] = []
    viewer.graph._show = lambda graph: shown.append([*graph.nodes])
    refused = "refused from other writers: memory/graph"
    spin_until(lambda: [*known] in shown if known else viewer.health.counts[refused], viewer, writer)
    assert all(nodes == known for nodes in shown if nodes)
    writer.destroy_node()
