"""Which topic a node reads a camera's images from, raw or compressed, and with which quality of service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.qos import QoSProfile
from sensor_msgs.msg import CompressedImage, Image

from engram.nodes import qos
from engram.nodes.base import EngramNode
from engram.nodes.messages.compressed import SUFFIXES


def raw_topic(camera: str, part: str) -> str:
    """Return the topic of a camera's color or depth images."""
    return f"camera/{camera}/{part}/image_raw"


def compressed_topic(camera: str, part: str) -> str:
    """Return the topic of the same images, compressed; named as image_transport does."""
    return f"{raw_topic(camera, part)}/{SUFFIXES[part]}"


def heard_topic(node: EngramNode, camera: str, part: str) -> str:
    """Return the topic that ``node`` hears those images on, after remapping: relative, if it is in its namespace."""
    name = (compressed_topic if node.config.image_transport == "compressed" else raw_topic)(camera, part)
    return node.resolve_topic_name(name).removeprefix(node.get_namespace().rstrip("/") + "/")


def subscribe_images(
    node: EngramNode, camera: str, part: str, take: Callable[[Any], None], raw_profile: QoSProfile
) -> None:
    """Subscribe ``node`` to a camera's color or depth images, in the way that its ``image_transport`` names."""
    if node.config.image_transport == "compressed":
        node.subscribe(CompressedImage, compressed_topic(camera, part), take, qos.COMPRESSED)
    else:
        node.subscribe(Image, raw_topic(camera, part), take, raw_profile)
