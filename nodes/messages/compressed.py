"""Compressed images, as ROS's image_transport names and fills them: color as JPEG, depth as PNG of millimetres."""

from __future__ import annotations

import struct
from array import array

import numpy as np
from sensor_msgs.msg import CompressedImage
from std_msgs.msg import Header

from engram.core.errors import unknown_name
from engram.runtime import image_codec

SUFFIXES = {"color": "compressed", "depth": "compressedDepth"}
"""What follows the topic of the raw image, by part of a camera."""
COLOR_FORMAT, DEPTH_FORMAT = "rgb8; jpeg compressed bgr8", "16UC1; compressedDepth png"
DEPTH_HEADER = struct.pack("<iff", 0, 0.0, 0.0)
"""What image_transport puts before the PNG; only its 32-bit images need the values."""


def color_to_compressed(color: np.ndarray, header: Header, quality: int) -> CompressedImage:
    """Return ``color`` (H, W, 3) uint8 rgb as JPEG of ``quality`` 1..95."""
    data = image_codec.encode_color(color, quality)
    return CompressedImage(header=header, format=COLOR_FORMAT, data=array("B", data))


def depth_to_compressed(depth: np.ndarray, header: Header) -> CompressedImage:
    """Return ``depth`` (H, W) float32 [m] as PNG, rounded to millimetres."""
    data = DEPTH_HEADER + image_codec.encode_depth(depth)
    return CompressedImage(header=header, format=DEPTH_FORMAT, data=array("B", data))


def color_from_compressed(msg: CompressedImage, name: str) -> np.ndarray:
    """Return the pixels (H, W, 3) uint8 rgb of a JPEG or PNG; ``name`` is for error messages.

    Raises:
        InvalidInputError: data that is neither, or too large.
    """
    return image_codec.decode_color(msg.data.tobytes(), name)


def depth_from_compressed(msg: CompressedImage, name: str) -> np.ndarray:
    """Return the pixels (H, W) float32 [m] of a PNG of millimetres; 0 means no return.

    Raises:
        UnknownNameError: an encoding that is not 16UC1.
        InvalidInputError: data that is no such PNG, or too large.
    """
    encoding, _, kind = msg.format.partition(";")
    if encoding != "16UC1":
        raise unknown_name(f"encoding of {name}", encoding, ("16UC1",))
    data = msg.data.tobytes()
    return image_codec.decode_depth(data[len(DEPTH_HEADER) :] if "compressedDepth" in kind else data, name)
