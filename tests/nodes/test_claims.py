"""Bound subscriptions over real DDS: several participants in this process, told apart as processes are."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from std_msgs.msg import Bool

from engram.core.errors import InvalidInputError
from engram.nodes import qos
from engram.nodes.base import EngramNode
from engram.nodes.claims import _claim, hear_bound, subscribe_bound
from engram.runtime.bounds import TEXT_MAX
from engram.runtime.health import Health
from engram.runtime.parameters import BoundNodeConfig
from engram_interfaces.msg import TaskStatus

pytestmark = [pytest.mark.ros, pytest.mark.timeout(120)]


class Bound(EngramNode):
    """Listens to topics that belong to one writer each; of task/step every message counts."""

    config_class = BoundNodeConfig

    def start(self) -> None:
        self.heard: list[Any] = []
        subscribe_bound(self, Bool, "safety/stopped", lambda msg: self.heard.append(msg.data), qos.LATCHED)
        subscribe_bound(self, TaskStatus, "task/status", lambda msg: self.heard.append(msg.episode), qos.LATCHED)
        self.steps: list[int] = []
        topic, profile = qos.every_status(lockstep=True)
        subscribe_bound(self, TaskStatus, topic, lambda msg: self.steps.append(msg.step), profile, every=True)


class World:
    """The bound node, and writers in participants of their own."""

    def __init__(self, writers: list[str]) -> None:
        self.contexts: list[Any] = []
        self.names: list[str] = []  # of the writers
        self.nodes: list[Any] = []
        words = [f"writers:=[{', '.join(writers)}]"] if writers else []
        self.node = Bound("bound", context=self._context(), cli_args=["--ros-args", *(["-p", *words] if words else [])])
        self.executor = SingleThreadedExecutor(context=self.node.context)
        self.executor.add_node(self.node)
        self.node.trigger_configure()
        self.node.trigger_activate()

    def _context(self) -> Any:
        context = rclpy.Context()
        rclpy.init(context=context)
        self.contexts.append(context)
        return context

    def writer(self, name: str) -> Any:
        """Return a writer of the topics in a participant of its own, once the node knows it."""
        node = rclpy.create_node(name, context=self._context())
        self.nodes.append(node)
        made = SimpleNamespace(
            node=node,
            stopped=node.create_publisher(Bool, "safety/stopped", qos.LATCHED),
            status=node.create_publisher(TaskStatus, "task/status", qos.LATCHED),
            step=node.create_publisher(TaskStatus, *qos.every_status(lockstep=True)),
        )
        self.until(lambda: all(out.get_subscription_count() for out in (made.stopped, made.status, made.step)))
        known = lambda: self.node.get_node_names().count(name) == sum(n == name for n in self.names)  # noqa: E731
        self.names.append(name)
        self.until(known)
        return made

    def until(self, condition: Any, timeout_s: float = 30.0) -> None:
        end = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end, self.said()
            self.executor.spin_once(timeout_sec=0.05)

    def spin(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.executor.spin_once(timeout_sec=0.05)

    def said(self) -> str:
        return self.node.health.condition(self.node.state).message

    def close(self) -> None:
        self.node.close()
        self.executor.shutdown()
        for node in (self.node, *self.nodes):  # else their participants stay, and others do not find each other
            node.destroy_node()
        for context in self.contexts:
            rclpy.try_shutdown(context=context)


@pytest.fixture
def world(request: pytest.FixtureRequest):
    made = World(getattr(request, "param", []))
    yield made
    made.close()


def test_the_second_writer_is_refused_counted_and_named(world: World) -> None:
    first, second = world.writer("safety_node"), world.writer("intruder")
    first.stopped.publish(Bool(data=True))
    world.until(lambda: world.node.heard == [True])
    second.stopped.publish(Bool(data=False))
    world.until(lambda: "writer of safety/stopped: from /intruder, but /safety_node writes it" in world.said())
    assert world.node.heard == [True]
    assert world.node.health.counts["refused from other writers: safety/stopped"] == 1


@pytest.mark.parametrize("world", [["safety/stopped=safety_node"]], indirect=True)
def test_a_restarted_node_s_latched_word_counts_once_its_predecessor_is_gone(world: World) -> None:
    intruder = world.writer("intruder")
    intruder.stopped.publish(Bool(data=False))
    world.until(lambda: "from /intruder, expected /safety_node" in world.said())
    first = world.writer("safety_node")
    first.stopped.publish(Bool(data=False))
    world.until(lambda: world.node.heard == [False])
    second = world.writer("safety_node")
    second.stopped.publish(Bool(data=True))  # once
    world.spin(0.5)
    assert world.node.heard == [False]
    first.node.destroy_node()
    world.until(lambda: world.node.heard == [False, True])


@pytest.mark.parametrize("world", [["safety/stopped=safety_node"]], indirect=True)
def test_a_latched_word_counts_though_a_stranger_s_comes_on_its_heels(world: World) -> None:
    first, intruder = world.writer("safety_node"), world.writer("intruder")
    first.stopped.publish(Bool(data=True))  # once
    intruder.stopped.publish(Bool(data=False))
    time.sleep(1.0)  # both have come when the node looks
    world.until(lambda: world.node.heard == [True])


def test_of_a_restarted_node_every_message_of_a_topic_that_is_kept_counts(world: World) -> None:
    first = world.writer("sim_node")
    first.step.publish(TaskStatus(step=7))
    world.until(lambda: world.node.steps == [7])
    second = world.writer("sim_node")
    for step in range(5):
        second.step.publish(TaskStatus(step=step))
    world.until(lambda: world.node.health.counts["refused from other writers: task/step"] == 5)
    assert world.node.steps == [7]
    first.node.destroy_node()
    world.until(lambda: len(world.node.steps) > 1)
    second.step.publish(TaskStatus(step=5))
    world.until(lambda: world.node.steps == [7, *range(6)])


def test_who_listens_from_outside_hears_the_node_it_names_and_what_is_no_message_is_told(world: World) -> None:
    heard: list[bool] = []
    health = Health()

    def hear(msg: Bool) -> None:
        if not msg.data:
            raise InvalidInputError("data: False, expected True")
        heard.append(msg.data)

    outside = rclpy.create_node("teleoperation", context=world.node.context)
    world.nodes.append(outside)
    world.executor.add_node(outside)
    hear_bound(outside, health, ("safety_node",), Bool, "safety/stopped", hear, qos.LATCHED)
    recording, safety = world.writer("recording"), world.writer("safety_node")
    recording.stopped.publish(Bool(data=True))
    world.until(lambda: "from /recording, expected /safety_node" in health.condition("").message)
    safety.stopped.publish(Bool(data=True))
    world.until(lambda: heard == [True])
    safety.stopped.publish(Bool(data=False))
    world.until(lambda: "safety/stopped: data: False" in health.condition("").message)


def refused(world: World) -> int:
    """Return how many messages the node counts as problems of task/status, as who must not miss one does."""
    return int(world.node.health.counts["problems task/status"])


@pytest.mark.parametrize("world", [["task/status=sim_node"]], indirect=True)
@pytest.mark.parametrize("wrong", ["too large", "ahead"])
def test_what_a_stranger_says_wrongly_is_no_message_that_was_lost(world: World, wrong: str) -> None:
    message = TaskStatus(episode=1, state="running")
    if wrong == "too large":
        message.instruction = "x" * (TEXT_MAX + 1)
    else:
        message.header.stamp.sec = int(time.time()) + 60
    stranger, writer = world.writer("stranger"), world.writer("sim_node")
    stranger.status.publish(message)
    world.until(lambda: "writer of task/status: from /stranger, expected /sim_node" in world.said())
    assert refused(world) == 0
    writer.status.publish(message)
    world.until(lambda: refused(world) == 1)
    assert "task/status: " in world.said() and world.node.heard == []


def test_a_message_for_another_robot_is_refused(world: World) -> None:
    writer = world.writer("sim_node")
    writer.status.publish(TaskStatus(robot_id="robot7", episode=1, state="running"))
    world.until(lambda: "robot of task/status: for robot 'robot7', this one is 'robot0'" in world.said())
    writer.status.publish(TaskStatus(robot_id="robot0", episode=2, state="running"))
    world.until(lambda: world.node.heard == [2])


def test_a_writer_that_is_not_topic_and_node_is_named() -> None:
    for entry in ("safety_node", "=x", "=", "command=safety_node,"):
        with pytest.raises(InvalidInputError, match=f"writers: '{entry}', expected topic=node or topic=node,node"):
            BoundNodeConfig(writers=(entry,)).writers_of("command")


def test_a_topic_that_nobody_could_write_is_refused_with_a_sentence() -> None:
    """As of takeover:="" at a launch."""
    why = "writers: 'intervention=' names no node, so nobody could write intervention; .*takeover.*leave it out"
    with pytest.raises(InvalidInputError, match=why):
        BoundNodeConfig(writers=("intervention=",)).writers_of("intervention")


def test_a_writer_of_another_namespace_is_named_in_full() -> None:
    there = {b"1" * 16: ("/", "pad"), b"2" * 16: ("/r1", "viewer_node"), b"3" * 16: ("/r1", "pad")}
    node: Any = SimpleNamespace(
        get_namespace=lambda: "/r1",
        get_publishers_info_by_topic=lambda topic: [
            SimpleNamespace(endpoint_gid=gid, node_namespace=namespace, node_name=name)
            for gid, (namespace, name) in there.items()
        ],
    )
    claim = _claim(node, "intervention", ("/pad", "viewer_node"))
    assert claim.refusal(b"3" * 16) == "from /r1/pad, expected /pad or /r1/viewer_node"
    assert claim.refusal(b"1" * 16) == ""


def test_a_topic_that_is_not_named_belongs_to_whoever_is_first_and_several_may_be_named() -> None:
    config = BoundNodeConfig(writers=("", "command=safety_node", "intervention=teleoperation, pad"))
    assert config.writers_of("joint_states") == ()
    assert config.writers_of("command") == ("safety_node",)
    assert config.writers_of("intervention") == ("teleoperation", "pad")
