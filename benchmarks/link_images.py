"""What of a stream of compressed images crosses a bad link, by Fast DDS profile and quality of service.

The choice in ``nodes/qos.py`` (COMPRESSED) and ``config/fastdds_link.xml`` rests on this. Publisher and subscriber are
processes on the two machines of :mod:`engram.benchmarks.link_rig`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import product

import numpy as np

from engram.benchmarks.link_rig import LinkRig

TOPIC = "link/images"
PROFILES = ("fastdds", "fastdds_link")
RATE_HZ = 10.0
LAST_S = 4.0
"""How long the subscriber listens on after the last image was published [s]."""
DISCOVERY_S = 30.0


@dataclass(frozen=True)
class Stream:
    """How images are published."""

    profile: str
    """File of config/ without its ending."""
    reliable: bool
    depth: int
    size: int
    """Size of an image [bytes]."""

    @property
    def name(self) -> str:
        """A name for reports."""
        quality = "reliable" if self.reliable else "best_effort"
        return f"{self.profile}_{quality}_{self.depth}_{self.size // 1000}kB"


STREAMS = tuple(
    Stream(profile, reliable, depth, size)
    for profile, (reliable, depth), size in product(
        PROFILES, ((False, 2), (True, 2), (True, 4), (True, 8)), (4000, 40000)
    )
)


def measure(stream: Stream, rig: LinkRig, domain: int, count: int, loss: float, delay_s: float) -> dict[str, float]:
    """Send ``count`` images at RATE_HZ; return the share that arrived, and their ages [s] at p50 and p95."""
    path = resources.files("engram.config") / f"{stream.profile}.xml"
    environment = {"ROS_DOMAIN_ID": str(domain), "FASTDDS_DEFAULT_PROFILES_FILE": str(path)}
    words = [sys.executable, "-m", "engram.benchmarks.link_images"]
    words += [str(int(stream.reliable)), str(stream.depth), str(stream.size), str(count)]
    rig.set(loss=0.0, delay_s=0.0)
    far = rig.start("far", [*words, "subscribe"], environment, subprocess.PIPE)
    body = rig.start("body", [*words, "publish"], environment, subprocess.PIPE)
    try:
        assert body.stdout is not None
        body.stdout.readline()  # they have found each other
        rig.set(loss=loss, delay_s=delay_s)
        ages = json.loads(far.communicate(timeout=DISCOVERY_S + count / RATE_HZ + 30.0)[0].decode().splitlines()[-1])
    finally:
        for process in (body, far):
            process.kill()
            process.wait()
    p50, p95 = np.percentile(ages, (50, 95)) if ages else (float("nan"), float("nan"))
    return {"share": len(ages) / count, "age_p50_s": float(p50), "age_p95_s": float(p95)}


def _publish_or_subscribe(words: Sequence[str]) -> None:
    """Be one end: prints a line when matched (publisher), or the ages of what arrived (subscriber)."""
    import rclpy
    from rclpy.node import Node
    from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
    from sensor_msgs.msg import CompressedImage

    reliable, depth, size, count = map(int, words[:4])
    kind = ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT
    profile = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=depth, reliability=kind)
    rclpy.init()
    node = Node(words[4])
    if words[4] == "publish":
        publisher = node.create_publisher(CompressedImage, TOPIC, profile)
        _wait(publisher.get_subscription_count)
        time.sleep(1.0)  # the other end may be slower to know it
        print("matched", flush=True)
        time.sleep(0.5)
        image = CompressedImage(data=array("B", bytes(size)))
        begin = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, begin + number / RATE_HZ - time.monotonic()))
            image.format = repr(time.time())
            publisher.publish(image)
        time.sleep(LAST_S + 60.0)  # until it is killed: a late repair needs a publisher
        return
    ages: list[float] = []
    subscription = node.create_subscription(
        CompressedImage, TOPIC, lambda msg: ages.append(time.time() - float(msg.format)), profile
    )
    _wait(subscription.get_publisher_count)
    end = time.monotonic() + count / RATE_HZ + LAST_S
    while time.monotonic() < end:
        rclpy.spin_once(node, timeout_sec=0.1)
    print(json.dumps(ages), flush=True)


def _wait(condition: Callable[[], object]) -> None:
    end = time.monotonic() + DISCOVERY_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)


if __name__ == "__main__":
    _publish_or_subscribe(sys.argv[1:])
