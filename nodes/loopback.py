"""Two processes over DDS on this machine: does a message cross, how fast, and do the live peers agree on types.

``python -m engram.nodes.loopback`` starts its own peer and prints one JSON object; ``engram doctor`` reads it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import numpy as np
import rclpy
from rclpy.node import Node
from sensor_msgs.msg import Image

from engram.nodes import qos
from engram.runtime.type_conflicts import End, conflict

SIZES = ((64, 1), (128, 128), (480, 640))
"""Images (rows, columns) of 3 bytes a pixel that go back and forth."""
ROUNDS = 30
TIMEOUT_S = 20.0
QUIET_S, DISCOVERY_S = 4.0, 12.0
"""Discovery is over when nothing was new for so long, or after so long. Who misses another's first announcements, on a
busy machine, hears of it by the next: Fast DDS repeats them every 3 s."""


def echo() -> None:
    """Send every image back until standard input closes."""
    rclpy.init()
    node = Node("loopback_echo")
    publisher = node.create_publisher(Image, "loopback/back", qos.SENSOR)
    node.create_subscription(Image, "loopback/there", publisher.publish, qos.SENSOR)
    print("ready", flush=True)
    while rclpy.ok():
        rclpy.spin_once(node, timeout_sec=1.0)
        if os.getppid() == 1:
            return  # whoever started us is gone


def round_trip_ms(node: Node, rows: int, columns: int) -> list[float]:
    """Return the wall-clock round trips [ms] of an rgb8 image; raises TimeoutError when none comes back."""
    back: list[Image] = []
    subscription = node.create_subscription(Image, "loopback/back", back.append, qos.SENSOR)
    publisher = node.create_publisher(Image, "loopback/there", qos.SENSOR)
    msg = Image(height=rows, width=columns, encoding="rgb8", step=3 * columns)
    msg.data.frombytes(memoryview(np.zeros(rows * columns * 3, np.uint8)))
    deadline = time.monotonic() + TIMEOUT_S
    while publisher.get_subscription_count() == 0 or subscription.get_publisher_count() == 0:
        rclpy.spin_once(node, timeout_sec=0.05)
        if time.monotonic() > deadline:
            raise TimeoutError("the two processes did not discover each other")
    times: list[float] = []
    for i in range(ROUNDS):
        msg.header.stamp.sec = i
        start = time.perf_counter()
        publisher.publish(msg)
        while not back or back[-1].header.stamp.sec != i:
            rclpy.spin_once(node, timeout_sec=0.05)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(times)} of {ROUNDS} messages of {len(msg.data)} bytes came back")
        times.append(1e3 * (time.perf_counter() - start))
        back.clear()
    node.destroy_subscription(subscription)
    node.destroy_publisher(publisher)
    return times


def type_conflicts(node: Node) -> list[str]:
    """Return one line for every topic on which peers use different definitions of the same type."""
    lines = []
    for topic, _ in node.get_topic_names_and_types():
        found = [*node.get_publishers_info_by_topic(topic), *node.get_subscriptions_info_by_topic(topic)]
        lines.append(conflict(topic, [End(end.topic_type, str(end.topic_type_hash), end.node_name) for end in found]))
    return [line for line in lines if line]


def live_graph() -> dict[str, list[str]]:
    """Return the nodes seen on this domain and the topics on which they disagree."""
    rclpy.init()
    node = Node("engram_doctor")
    began = changed = time.monotonic()
    seen: tuple[list[str], int] = ([], 0)  # node names, number of publishers and subscriptions
    while time.monotonic() - changed < QUIET_S and time.monotonic() - began < DISCOVERY_S:
        rclpy.spin_once(node, timeout_sec=0.1)
        found = sorted(f"{ns.rstrip('/')}/{name}" for name, ns in node.get_node_names_and_namespaces())
        topics = [name for name, _ in node.get_topic_names_and_types()]
        ends = sum(node.count_publishers(name) + node.count_subscribers(name) for name in topics)
        if (found, ends) != seen:
            seen, changed = (found, ends), time.monotonic()
    result = {"nodes": [n for n in seen[0] if n != "/engram_doctor"], "conflicts": type_conflicts(node)}
    rclpy.shutdown()
    return result


def loopback() -> dict[str, dict[str, float]]:
    """Start the peer on the free domain given by the environment and measure."""
    peer = subprocess.Popen([sys.executable, "-m", "engram.nodes.loopback", "echo"], stdout=subprocess.PIPE, text=True)
    try:
        rclpy.init()
        node = Node("loopback")
        result = {}
        for rows, columns in SIZES:
            times = round_trip_ms(node, rows, columns)
            p50, p99 = np.percentile(times, (50, 99))
            result[str(rows * columns * 3)] = {"p50_ms": round(float(p50), 3), "p99_ms": round(float(p99), 3)}
        rclpy.shutdown()
        return result
    finally:
        peer.kill()
        peer.wait()


def main() -> int:
    """``echo``, ``graph`` or (default) the loopback itself; prints JSON."""
    mode = sys.argv[1] if len(sys.argv) > 1 else "loopback"
    if mode == "echo":
        echo()
        return 0
    try:
        print(json.dumps(live_graph() if mode == "graph" else loopback()))
    except TimeoutError as error:
        print(json.dumps({"error": str(error)}))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
