"""One end of the network between the robot's machine and another: compresses camera images for it and watches it.

It runs on both machines. On the robot's it republishes every camera's images as JPEG and PNG, and only while somebody
subscribes to them. On either it listens for the diagnostics of the nodes on the other side, and its own diagnostics say
when the link is lost and when it is restored.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import NoReturn

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.publisher import Publisher
from rclpy.subscription import Subscription
from sensor_msgs.msg import CompressedImage, Image

from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.image_topics import compressed_topic, raw_topic
from engram.nodes.messages.diagnostics import STALE
from engram.nodes.process import run
from engram.runtime.health import TOPIC, own_name
from engram.runtime.link_watch import LinkWatch
from engram.runtime.parameters.link import LinkNodeConfig

IMAGE_TOPIC = re.compile(r"camera/([^/]+)/(color|depth)/image_raw")
MOST_STREAMS = 32
"""Image topics that are compressed at most: 16 cameras, as the page shows."""
GONE_S = 5.0
"""A camera that nobody publishes for longer is gone; a driver that starts again takes less [s]."""
LOOK_S = 0.5
"""Time between two looks at who subscribes and who was heard of [s]."""


@dataclass
class Stream:
    """One image topic and its compressed twin."""

    camera: str
    part: str
    publisher: Publisher
    subscription: Subscription | None = None  # to the raw images, while somebody wants the compressed ones
    last_ns: int = 0  # stamp of the newest image that was compressed
    there_s: float = 0.0  # when somebody published the raw images, monotonic


class LinkNode(EngramNode):
    """Compresses images on demand, and listens for the other side."""

    config_class = LinkNodeConfig

    def __init__(self) -> None:
        super().__init__("link_node")

    def setup(self) -> None:
        """Begin to watch."""
        config = self.config
        self.watch = LinkWatch(() if config.peers == ("",) else config.peers, config.lost_after_s)
        self.streams: dict[str, Stream] = {}  # raw topic -> what becomes of it

    def start(self) -> None:
        """Look for cameras and listen for peers."""
        if self.watch.peers:
            self.subscribe(DiagnosticArray, TOPIC, self._on_diagnostics, qos.DIAGNOSTICS)
            self.every(LOOK_S, self._look, "link")
        if self.config.compress:
            # One at a time, and the newest: a late image is of no use.
            self.thread = self.worker("compress", lambda job: self._compress(*job), capacity=4)
            self.every(LOOK_S, self._serve, "cameras")

    def stop(self) -> None:
        """Take back the compressed topics."""
        for stream in self.streams.values():
            self._pause(stream)
            self.destroy_publisher(stream.publisher)
        self.streams.clear()

    # -- images ----------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Offer every image topic of this robot compressed, and read those that somebody subscribes to."""
        base = self.get_namespace().rstrip("/") + "/"
        for topic, _ in self.get_topic_names_and_types():
            found = IMAGE_TOPIC.fullmatch(topic.removeprefix(base)) if topic.startswith(base) else None
            if found is not None and found[0] not in self.streams and self.count_publishers(found[0]):
                self._offer(found[1], found[2])
        for raw, stream in list(self.streams.items()):
            wanted, reads = stream.publisher.get_subscription_count() > 0, stream.subscription is not None
            if there := self.count_publishers(raw) > 0:
                stream.there_s = time.monotonic()
            if not there and (not wanted or time.monotonic() - stream.there_s > GONE_S):  # the page waits for us to go
                self._pause(stream)
                self.destroy_publisher(self.streams.pop(raw).publisher)
            elif wanted and not reads:
                self._resume(stream)
            elif reads and not wanted:
                self._pause(stream)

    def _offer(self, camera: str, part: str) -> None:
        topic = compressed_topic(camera, part)
        if self.count_publishers(topic):
            return  # the camera's driver compresses it already
        if len(self.streams) >= MOST_STREAMS:
            self.health.problem("cameras", f"{topic[:100]} is left out: there are {MOST_STREAMS} image topics already")
            return
        publisher = self.create_publisher(CompressedImage, topic, qos.COMPRESSED)
        self.streams[raw_topic(camera, part)] = Stream(camera, part, publisher)

    def _resume(self, stream: Stream) -> None:
        take = self.guarded(f"camera {stream.camera}", lambda msg: self._on_image(stream, msg))
        topic = raw_topic(stream.camera, stream.part)
        stream.subscription = self.create_subscription(Image, topic, take, qos.SENSOR_BEST_EFFORT)

    def _pause(self, stream: Stream) -> None:
        if stream.subscription is not None:
            self.destroy_subscription(stream.subscription)
            stream.subscription = None

    def _on_image(self, stream: Stream, msg: Image) -> None:
        stamp_ns = messages.from_stamp(msg.header.stamp)
        early = 0 <= stamp_ns - stream.last_ns < 0.95e9 / self.config.rate_hz
        if not early:
            stream.last_ns = stamp_ns
            self.thread.put((stream, msg))

    def _compress(self, stream: Stream, msg: Image) -> None:
        """Compress and publish one image; in the worker's thread."""
        name = f"camera {stream.camera!r} {stream.part}"
        with self.health.timed("compress"):
            if stream.part == "color":
                pixels = messages.color_from_msg(msg, name)
                out = messages.color_to_compressed(pixels, msg.header, self.config.quality)
            else:
                out = messages.depth_to_compressed(messages.depth_from_msg(msg, name), msg.header)
        stream.publisher.publish(out)
        self.health.count(f"{stream.part} images of {stream.camera}")
        self.health.count("bytes", len(out.data))

    # -- the other side --------------------------------------------------------------------------------------------

    def _on_diagnostics(self, msg: DiagnosticArray) -> None:
        for full_name, said in messages.conditions_from_msg(msg):
            name = own_name(full_name, self.get_namespace())
            if name and said.level != STALE:  # stale: another node says that it is silent
                self.watch.heard(name, time.monotonic())

    def _look(self) -> None:
        if wrong := self.watch.look(time.monotonic()):
            self.health.problem("link", wrong)
        else:
            self.health.clear("link")
        if self.watch.news and self.watch.state == "lost":
            self.get_logger().warning(self.watch.news)
        elif self.watch.news:
            self.get_logger().info(self.watch.news)

    def add_diagnostics(self) -> None:
        """Tell how the link is and was."""
        if self.state == "active" and self.watch.peers:
            for key, text in self.watch.notes().items():
                self.health.note(key, text)


def main() -> NoReturn:
    """Run the node."""
    run(LinkNode)


if __name__ == "__main__":
    main()
