"""Compressed images as image_transport fills them, through a message and back."""

import io
import struct
from array import array

import numpy as np
import pytest
from PIL import Image
from rclpy.qos import ReliabilityPolicy
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import CompressedImage
from sensor_msgs.msg import Image as ImageMsg

from engram.core.errors import UnknownNameError
from engram.nodes import messages, qos
from engram.nodes.image_topics import compressed_topic, subscribe_images
from engram.runtime.parameters import CameraNodeConfig

DEPTH = np.array([[0.5, 1.25], [0.0, 2.001]], np.float32)


def through(msg):
    """Return ``msg`` as another process would get it."""
    return deserialize_message(serialize_message(msg), type(msg))


def test_topics_are_those_of_image_transport():
    assert compressed_topic("front", "color") == "camera/front/color/image_raw/compressed"
    assert compressed_topic("front", "depth") == "camera/front/depth/image_raw/compressedDepth"


def test_color_keeps_stamp_frame_and_channels():
    color = np.full((16, 16, 3), (200, 30, 60), np.uint8)
    msg = through(messages.color_to_compressed(color, messages.header(5_000_000_007, "lens"), 90))
    assert (messages.from_stamp(msg.header.stamp), msg.header.frame_id) == (5_000_000_007, "lens")
    assert msg.format == "rgb8; jpeg compressed bgr8"
    assert np.abs(messages.color_from_msg(msg, "x").astype(int) - color).max() <= 4


def test_depth_is_the_same_to_the_millimetre():
    msg = through(messages.depth_to_compressed(DEPTH, messages.header(7, "lens")))
    assert msg.format == "16UC1; compressedDepth png"
    np.testing.assert_allclose(messages.depth_from_msg(msg, "x"), DEPTH, atol=1e-6)


def test_what_image_transport_publishes_is_read():
    out = io.BytesIO()
    Image.fromarray(np.array([[1500]], np.uint16)).save(out, "PNG")
    with_header = struct.pack("<iff", 0, 100.0, 4.0) + out.getvalue()
    for kind, data in (("16UC1; compressedDepth png", with_header), ("16UC1; png compressed ", out.getvalue())):
        msg = CompressedImage(format=kind, data=array("B", data))
        np.testing.assert_allclose(messages.depth_from_msg(msg, "x"), [[1.5]])


def test_depth_in_another_unit_is_refused():
    msg = CompressedImage(format="32FC1; compressedDepth png", data=array("B", b"x" * 40))
    with pytest.raises(UnknownNameError, match="encoding of camera depth '32FC1'; valid: 16UC1"):
        messages.depth_from_msg(msg, "camera depth")


class Subscriber:
    """Notes what a node would subscribe to."""

    def __init__(self, transport):
        self.config = CameraNodeConfig(image_transport=transport)
        self.found = []

    def subscribe(self, msg_type, topic, take, profile):
        self.found.append((msg_type, topic, profile))


def test_the_parameter_chooses_topic_type_and_quality_of_service():
    raw, compressed = Subscriber("raw"), Subscriber("compressed")
    for node in (raw, compressed):
        for part in ("color", "depth"):
            subscribe_images(node, "wrist", part, print, qos.SENSOR_BEST_EFFORT)
    base = "camera/wrist/{}/image_raw"
    assert raw.found == [(ImageMsg, base.format(part), qos.SENSOR_BEST_EFFORT) for part in ("color", "depth")]
    assert compressed.found == [
        (CompressedImage, base.format("color") + "/compressed", qos.COMPRESSED),
        (CompressedImage, base.format("depth") + "/compressedDepth", qos.COMPRESSED),
    ]
    assert (qos.COMPRESSED.reliability, qos.COMPRESSED.depth) == (ReliabilityPolicy.RELIABLE, 8)
