"""A process from outside that sends hostile messages and calls to every topic and service of the running nodes.

It is told what to attack by lines on standard input, ``attack COUNT RATE topic:NAME service:NAME ...``, and answers
each with a line of JSON in a file. ``list`` answers with what there is to attack. ``pretend`` in place of ``attack``
sends messages in which nothing is wrong, one to each topic in turn.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
import tyro
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import JointState

from engram.benchmarks.faults_messages import change, hostile, mutated, random_message, type_of
from engram.benchmarks.faults_pretence import Pretender
from engram.benchmarks.faults_writers import Writers
from engram.core.registry import make_robot
from engram.nodes import messages, qos

OURS = ("faults_attacker", "faults_watch", "engram_demo", "fake_robot", "second_publisher")
AUTHORITY = ("safety/reset", "lifecycle_manager/startup", "lifecycle_manager/pause", "lifecycle_manager/shutdown")
"""Calls that are obeyed whoever makes them, without arguments that could be wrong: SROS2 says who may."""
TRANSITIONS = ("create", "configure", "cleanup", "activate", "deactivate", "shutdown", "destroy")
VARIANTS = 10
"""Messages made of one drawing: the next ones are the one before with one more field wrong."""
PENDING = 8
"""Most calls of a service that wait for their answer."""
ANSWER_S = 0.2
"""When so many wait, the oldest is given up after this [s]."""


@dataclass(frozen=True)
class AttackerConfig:
    """How it attacks."""

    output: tyro.conf.Positional[Path]
    """File for its answers, one JSON object a line."""
    seed: int = 0
    """Of all messages."""
    robot: str = "panda_2f85"
    """Robot that it pretends to drive."""


class Attacker(Node):
    """Publishes and calls; keeps the newest good message of each topic to send it changed."""

    def __init__(self, seed: int, robot: str) -> None:
        super().__init__("faults_attacker")
        self.rng, self.pretender = np.random.default_rng(seed), Pretender(make_robot(robot))
        self.writers = Writers(self)
        self.good: dict[str, deque[Any]] = {}
        self._ends: dict[str, Any] = {}
        self._drawn: dict[str, tuple[Any, int]] = {}  # newest message of a topic, and how many more are made of it

    def targets(self) -> dict[str, list[str]]:
        """Return the name of every topic that a node listens to, and of every service."""
        topics = [
            name
            for name, _ in self.get_topic_names_and_types()
            if any(end.node_name not in OURS for end in self.get_subscriptions_info_by_topic(name))
        ]
        services = [
            name
            for name, _ in self.get_service_names_and_types()
            if not any(name.endswith(one) for one in AUTHORITY) and name.strip("/").split("/")[0] not in OURS
        ]
        return {"topics": sorted(topics), "services": sorted(services)}

    def publisher(self, name: str) -> Any:
        """Return a publisher that matches every subscriber of ``name``, listening to what is good there meanwhile."""
        if name not in self._ends:
            cls = type_of(dict(self.get_topic_names_and_types())[name][0])
            reliable, latched = ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL
            profile = QoSProfile(depth=32, reliability=reliable, durability=latched)
            self.good[name] = deque(maxlen=4)
            best_effort = QoSProfile(depth=4, reliability=ReliabilityPolicy.BEST_EFFORT)
            self._ends[name] = self.create_publisher(cls, name, profile)
            self.create_subscription(cls, name, partial(self._on_good, name), best_effort)
        return self._ends[name]

    def _on_good(self, name: str, msg: Any, info: Any) -> None:
        if self.writers.name(name, info) != self.get_name():
            self.good[name].append(msg)

    def hear_joints(self) -> None:
        """Take in where the robot is."""
        if "hear" not in self._ends:
            self._ends["hear"] = self.create_subscription(JointState, "joint_states", self._on_joints, qos.SENSOR)

    def _on_joints(self, msg: JointState, info: Any) -> None:
        if self.writers.name("joint_states", info) not in ("", self.get_name()):
            joints = messages.joints_from_msg(msg, self.pretender.robot.joint_names)
            self.pretender.joints = joints.positions

    def client(self, name: str) -> Any:
        """Return a client of the service ``name``."""
        if name not in self._ends:
            kinds = dict(self.get_service_names_and_types())
            self._ends[name] = self.create_client(type_of(kinds[name][0]), name)
        return self._ends[name]

    def message(self, name: str, cls: Any) -> Any:
        """Return the next hostile message for a topic."""
        good, (before, left) = self.good[name], self._drawn.get(name, (None, 0))
        if left > 0:
            change(before, self.rng)
        else:
            before, left = hostile(name, cls, good[-1] if good else None, self.rng), VARIANTS
        self._drawn[name] = (before, left - 1)
        return before

    def request(self, name: str, cls: Any) -> Any:
        """Return the next hostile request of a service; never one that is right and obeyed."""
        rng, kind = self.rng, cls.Request
        msg = random_message(kind, rng) if rng.random() < 0.7 else mutated(kind(), rng)
        if name.endswith("/change_state"):
            msg.transition.id = int(rng.integers(100, 256))
            if msg.transition.label in TRANSITIONS or not msg.transition.label:
                msg.transition.label = "nothing"
        if name.endswith(("/set_parameters", "/set_parameters_atomically")):
            own = ("policy", "accept", "use_sim_time", "control.control_dt_s", "robot", "autostart", "trusted_key")
            for one in msg.parameters:
                one.name = str(rng.choice(own))
        return msg


def attack(
    node: Attacker, executor: SingleThreadedExecutor, kind: str, name: str, count: int, rate: float
) -> dict[str, int]:
    """Send ``count`` messages or calls at most ``rate`` a second; return how many went out and what was answered."""
    end = node.publisher(name) if kind == "topic" else node.client(name)
    began, sent, failed, answered = time.monotonic(), 0, 0, 0
    waiting: list[Any] = []
    settled = began + 5.0
    ready = end.get_subscription_count if kind == "topic" else end.service_is_ready
    while time.monotonic() < settled and not (ready() and (kind != "topic" or time.monotonic() > began + 0.5)):
        executor.spin_once(0.02)
    began = time.monotonic()
    while sent + failed < count:
        try:
            if kind == "topic":
                end.publish(node.message(name, end.msg_type))
            else:
                waiting.append(end.call_async(node.request(name, end.srv_type)))
            sent += 1
        except Exception:  # noqa: BLE001, the message cannot even be sent: DDS or the type refuses it
            failed += 1
        until = time.monotonic() + ANSWER_S
        while len(waiting) >= PENDING and time.monotonic() < until:
            executor.spin_once(0.02)
            waiting, answered = open_calls(waiting, answered)
        if len(waiting) >= PENDING:  # what makes no sense may go without an answer
            end.remove_pending_request(waiting.pop(0))
        executor.spin_once(0.0)
        while sent / rate > time.monotonic() - began:
            executor.spin_once(0.01)
    until = time.monotonic() + (2.0 if waiting else 0.1)
    while time.monotonic() < until and (waiting or kind == "topic"):
        executor.spin_once(0.02)
        waiting, answered = open_calls(waiting, answered)
    for one in waiting:
        end.remove_pending_request(one)
    return {"sent": sent, "not_sendable": failed, "answered": answered}


def pretend(
    node: Attacker, executor: SingleThreadedExecutor, names: Sequence[str], count: int, rate: float
) -> dict[str, int]:
    """Send ``count`` messages in which nothing is wrong to each topic, in turns, at most ``rate`` turns a second."""
    node.hear_joints()
    ends = {name: node.publisher(name) for name in names}
    settled = time.monotonic() + 5.0
    while time.monotonic() < settled and not all(end.get_subscription_count() for end in ends.values()):
        executor.spin_once(0.02)
    began = time.monotonic()
    while time.monotonic() < began + 0.5:  # the nodes discover it, too, and it hears where the robot is
        executor.spin_once(0.02)
    began = time.monotonic()
    for number in range(count):
        while number / rate > time.monotonic() - began:
            executor.spin_once(0.01)
        for name, end in ends.items():
            end.publish(node.pretender.message(name, time.time_ns()))
    return {"sent": count * len(ends), "not_sendable": 0, "answered": 0}


def open_calls(waiting: list[Any], answered: int) -> tuple[list[Any], int]:
    """Return the calls that still wait, and how many have been answered in all."""
    still = [one for one in waiting if not one.done()]
    return still, answered + len(waiting) - len(still)


def main() -> None:
    """Attack as standard input says, until it ends."""
    config = tyro.cli(AttackerConfig)
    orders: deque[list[str]] = deque()

    def read() -> None:
        for line in sys.stdin:
            orders.append(line.split())
        orders.append(["end"])

    threading.Thread(target=read, daemon=True).start()
    rclpy.init()
    node = Attacker(config.seed, config.robot)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    with config.output.open("w") as out:
        try:
            while True:
                executor.spin_once(0.02)
                if not orders:
                    continue
                order = orders.popleft()
                if order[0] == "end":
                    break
                if order[0] == "list":
                    answer: dict[str, Any] = node.targets()
                elif order[0] == "pretend":
                    names = [target.partition(":")[2] for target in order[3:]]
                    answer = pretend(node, executor, names, int(order[1]), float(order[2]))
                else:
                    answer = {"sent": 0, "not_sendable": 0, "answered": 0}
                    for target in order[3:]:
                        kind, _, name = target.partition(":")
                        told = attack(node, executor, kind, name, int(order[1]), float(order[2]))
                        answer = {key: answer[key] + told[key] for key in answer}
                print(json.dumps(answer), file=out, flush=True)
        except (KeyboardInterrupt, ExternalShutdownException):
            pass
        finally:
            node.destroy_node()
            rclpy.try_shutdown()


if __name__ == "__main__":
    main()
