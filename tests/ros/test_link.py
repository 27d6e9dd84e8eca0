"""Two link nodes in two network namespaces, with a link between them that loses, delays and is cut."""

import importlib.resources
import os
import subprocess
import sys

import numpy as np
import pytest
from sensor_msgs.msg import Image

from engram.benchmarks.link_rig import LinkRig, why_not
from engram.nodes import messages, qos
from tests.ros.processes import ROOT, Graph, python_path

WHY_NOT = why_not()
pytestmark = [
    pytest.mark.ros,
    pytest.mark.timeout(150),
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "-"),
]
OWN_PROCESS = "ENGRAM_TEST_LINK"
"""Environment variable of the process that pytest is started in for this test alone."""
PERIOD_S = 0.1
PROFILE = importlib.resources.files("engram.config") / "fastdds_link.xml"
FAR = """
import os, rclpy, sys
from rclpy.node import Node
from sensor_msgs.msg import CompressedImage
from engram.nodes import messages, qos
rclpy.init()
node = Node("page")
def take(msg):
    assert messages.color_from_msg(msg, "x").shape == (128, 128, 3)
    print(messages.from_stamp(msg.header.stamp), flush=True)
node.create_subscription(CompressedImage, "camera/front/color/image_raw/compressed", take, qos.COMPRESSED)
while not os.path.exists(sys.argv[1]):
    rclpy.spin_once(node, timeout_sec=0.1)
"""


class TwoMachines:
    """A link node on each machine, and the test's own node on the robot's, which is its camera."""

    def __init__(self, rig: LinkRig, domain: int, folder) -> None:
        self.rig, self.folder = rig, folder
        self.environment = {"ROS_DOMAIN_ID": str(domain), "PYTHONPATH": python_path(), "OMP_NUM_THREADS": "1"}
        self.environment |= {"FASTDDS_DEFAULT_PROFILES_FILE": str(PROFILE)}
        self.children = [
            self.start("body", "link_node", "-m", "engram.nodes.link_node", *arguments("link_node", "far_link_node")),
            self.start("far", "far", "-m", "engram.nodes.link_node", *arguments("far_link_node", "link_node")),
        ]
        self.graph = Graph(domain)
        self.camera = self.graph.node.create_publisher(Image, "camera/front/color/image_raw", qos.SENSOR)
        noise = np.random.default_rng(0).integers(0, 255, (128, 128, 3), np.uint8)
        self.image = messages.color_to_msg(noise, 0, "lens")
        self.sent = 0

    def start(self, end, name, *words):
        with (self.folder / f"{name}.log").open("w") as log:
            return self.rig.start(end, [sys.executable, *words], self.environment, log.fileno())

    def film(self, seconds: float) -> None:
        """Publish images, and spin."""
        for _ in range(round(seconds / PERIOD_S)):
            self.sent += 1
            self.image.header.stamp = messages.to_stamp(self.sent * 100_000_000)
            self.camera.publish(self.image)
            self.graph.spin(PERIOD_S)

    def seen(self) -> list[int]:
        """Return the images that reached the page, numbered from 1 as they were sent."""
        return [int(stamp) // 100_000_000 for stamp in (self.folder / "page.log").read_text().split()]

    def say(self, key: str, value: str) -> bool:
        """Whether the diagnostics of both link nodes have ``value`` for ``key``."""
        return all(self.graph.value(node, key) == value for node in ("link_node", "far_link_node"))

    def close(self) -> None:
        for child in self.children:
            child.terminate()
        codes = [child.wait(30) for child in self.children]
        self.graph.close()
        assert codes == [0] * len(codes), "".join(path.read_text() for path in self.folder.glob("*.log"))


def arguments(name: str, peer: str) -> list[str]:
    parameters = [f"peers:=['{peer}']", "lost_after_s:=2.5", f"compress:={str(name == 'link_node').lower()}"]
    return ["--ros-args", "-r", f"__node:={name}", *(word for p in parameters for word in ("-p", p))]


@pytest.fixture
def machines(tmp_path, monkeypatch):
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET")
    monkeypatch.chdir(ROOT)
    with LinkRig(seed=0) as rig, rig.inside("body"):
        made = TwoMachines(rig, int(os.environ["ROS_DOMAIN_ID"]), tmp_path)
        yield made
        rig.set(loss=0.0, delay_s=0.0, cut=False)
        made.close()


@pytest.mark.skipif(OWN_PROCESS in os.environ, reason="runs here already")
def test_the_link_in_a_process_of_its_own():
    """Fast DDS looks for network interfaces once in a process: after another test it would not find the rig's."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(ROOT / "tests/ros/test_link.py")]
    environment = {**os.environ, OWN_PROCESS: "1"}
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST")}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=140)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout[-6000:]


@pytest.mark.skipif(OWN_PROCESS not in os.environ, reason="runs in test_the_link_in_a_process_of_its_own")
def test_images_cross_a_bad_link_whole_and_a_cut_is_told_and_over(machines):
    graph, rig = machines.graph, machines.rig
    graph.wait(lambda: machines.say("link", "up"), 60.0, "both sides hear each other")
    machines.film(2.0)
    assert machines.camera.get_subscription_count() == 0  # nobody wants the images: they are not even read
    assert graph.value("link_node", "color images of front") == ""

    rig.set(loss=0.1, delay_s=0.1)
    begun, left = machines.sent, machines.folder / "left"
    page = machines.start("far", "page", "-c", FAR, str(left))
    graph.wait(machines.camera.get_subscription_count, 30.0, "the link node reads the camera for the page")
    # The link node knows of the page before the page knows of it: what is sent until then is for nobody.
    graph.wait(lambda: machines.film(0.5) or machines.seen(), 30.0, "the page sees images")
    first = machines.sent + 1
    machines.film(6.0)
    end = machines.sent
    assert len(machines.image.data) == 49152
    rig.set(cut=True)
    graph.wait(lambda: graph.value("link_node", "link") == "lost", 20.0, "the robot's side tells that the link is lost")
    assert "nothing from far_link_node for" in graph.message("link_node")
    graph.spin(3.0)  # the other side may have heard of this one a little later
    rig.set(cut=False)
    both = lambda: machines.say("link lost", "1") and machines.say("link restored", "1")  # noqa: E731
    graph.wait(lambda: machines.say("link", "up") and both(), 20.0, "both sides tell of one cut, and that it is over")

    left.touch()
    assert page.wait(30) == 0
    assert 40 <= int(graph.value("link_node", "color images of front")) <= end - begun
    settled = end - 5  # the last half second was on its way when the link was cut
    arrived = [number for number in machines.seen() if first <= number <= settled]
    assert len(set(arrived)) == len(arrived) >= 0.95 * (settled - first + 1)
    graph.wait(lambda: not machines.camera.get_subscription_count(), 20.0, "nobody wants the images any more")
