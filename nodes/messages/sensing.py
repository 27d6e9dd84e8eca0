"""Images, camera parameters and joint states."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from sensor_msgs.msg import JointState as JointStateMsg

from engram.core.errors import InvalidInputError, NonFiniteError, unknown_name
from engram.core.types import JointState
from engram.nodes.messages.basics import doubles, from_stamp, header
from engram.nodes.messages.compressed import color_from_compressed, depth_from_compressed
from engram.runtime.bounds import SIDE_MAX

COLOR_CHANNELS = {"rgb8": (0, 1, 2), "bgr8": (2, 1, 0)}
"""Colour encodings that are read, with the channel order that gives rgb."""
DEPTH_TYPES: dict[str, np.dtype] = {"32FC1": np.dtype(np.float32), "16UC1": np.dtype(np.uint16)}
"""Depth encodings that are read: metres, or millimetres as most drivers send them."""


def color_to_msg(color: np.ndarray, stamp_ns: int, frame: str) -> Image:
    """Return an rgb8 image of ``color`` (H, W, 3) uint8."""
    height, width, _ = color.shape
    return _image("rgb8", height, width, width * 3, color, stamp_ns, frame)


def depth_to_msg(depth: np.ndarray, stamp_ns: int, frame: str) -> Image:
    """Return a 32FC1 image of ``depth`` (H, W) float32 m."""
    height, width = depth.shape
    return _image("32FC1", height, width, width * 4, depth, stamp_ns, frame)


def _image(encoding: str, height: int, width: int, step: int, pixels: np.ndarray, stamp_ns: int, frame: str) -> Image:
    msg = Image(header=header(stamp_ns, frame), height=height, width=width, encoding=encoding, step=step)
    msg.is_bigendian = 0
    msg.data.frombytes(memoryview(np.ascontiguousarray(pixels).reshape(-1)).cast("B"))
    return msg


def color_from_msg(msg: Image | CompressedImage, name: str) -> np.ndarray:
    """Return the pixels of a colour image as (H, W, 3) uint8 rgb; ``name`` is for error messages.

    Raises:
        UnknownNameError: an encoding that is not rgb8 or bgr8.
        InvalidInputError: a size that does not fit the data, or compressed data that cannot be read.
    """
    if isinstance(msg, CompressedImage):
        return color_from_compressed(msg, name)
    if msg.encoding not in COLOR_CHANNELS:
        raise unknown_name(f"encoding of {name}", msg.encoding, COLOR_CHANNELS)
    rows = _rows(msg, name, msg.width * 3)
    pixels = rows.reshape(msg.height, msg.width, 3)
    return pixels if msg.encoding == "rgb8" else pixels[..., COLOR_CHANNELS[msg.encoding]]


def depth_from_msg(msg: Image | CompressedImage, name: str) -> np.ndarray:
    """Return the pixels of a depth image as (H, W) float32 m; NaN and 0 mean no return.

    Raises:
        UnknownNameError: an encoding that is not 32FC1 or 16UC1.
        InvalidInputError: a size that does not fit the data, not one finite pixel, or compressed data that cannot be
            read.
    """
    if isinstance(msg, CompressedImage):
        return depth_from_compressed(msg, name)
    if msg.encoding not in DEPTH_TYPES:
        raise unknown_name(f"encoding of {name}", msg.encoding, DEPTH_TYPES)
    dtype = DEPTH_TYPES[msg.encoding]
    if bool(msg.is_bigendian) != (sys.byteorder == "big"):
        dtype = dtype.newbyteorder()
    depth = _rows(msg, name, msg.width * dtype.itemsize).view(dtype).astype(np.float32)
    if msg.encoding == "16UC1":
        depth /= 1000.0
    if not np.isfinite(depth).any():
        raise InvalidInputError(f"{name}: no finite depth in {msg.height} x {msg.width} pixels")
    return depth


def _rows(msg: Image, name: str, row_bytes: int) -> np.ndarray:
    """Return the pixel bytes (H, row_bytes) of ``msg`` without the padding at the end of each row."""
    if not (0 < msg.height <= SIDE_MAX and 0 < msg.width <= SIDE_MAX):
        raise InvalidInputError(f"{name}: size {msg.width} x {msg.height}, expected 1 x 1 to {SIDE_MAX} x {SIDE_MAX}")
    if msg.step < row_bytes:
        raise InvalidInputError(f"{name}: step {msg.step}, expected at least {row_bytes} for width {msg.width}")
    if len(msg.data) != msg.step * msg.height:
        raise InvalidInputError(f"{name}: {len(msg.data)} bytes, expected {msg.step} x {msg.height}")
    rows = np.frombuffer(msg.data, np.uint8).reshape(msg.height, msg.step)
    return np.ascontiguousarray(rows[:, :row_bytes])


def camera_info_to_msg(intrinsics: np.ndarray, width: int, height: int, stamp_ns: int, frame: str) -> CameraInfo:
    """Return the parameters of an ideal pinhole camera; ``intrinsics`` (3, 3), pixels."""
    msg = CameraInfo(header=header(stamp_ns, frame), height=height, width=width, distortion_model="plumb_bob")
    msg.d = [0.0] * 5
    msg.k = np.asarray(intrinsics, np.float64).reshape(9)
    msg.r = np.eye(3).reshape(9)
    msg.p = np.hstack((intrinsics, np.zeros((3, 1)))).reshape(12)
    return msg


def intrinsics_from_msg(msg: CameraInfo, name: str) -> np.ndarray:
    """Return the (3, 3) intrinsics, pixels; raises InvalidInputError for an uncalibrated camera (K[0] = 0)."""
    intrinsics = np.array(msg.k, np.float64).reshape(3, 3)
    if not np.isfinite(intrinsics).all() or intrinsics[0, 0] <= 0 or intrinsics[1, 1] <= 0:
        raise InvalidInputError(
            f"{name}: focal length {msg.k[0]}, {msg.k[4]} pixels, expected calibrated values above 0"
        )
    return intrinsics


def joints_to_msg(joints: JointState) -> JointStateMsg:
    """Return ``joints``; positions and velocities are carried as float64, bit for bit."""
    msg = JointStateMsg(header=header(joints.stamp_ns), name=list(joints.names))
    msg.position = doubles(joints.positions)
    msg.velocity = doubles(joints.velocities)
    return msg


def joints_from_msg(msg: JointStateMsg, names: Sequence[str]) -> JointState:
    """Return the joints ``names``, in that order, from a message that may hold more, in another order.

    Drivers that measure no velocity leave it empty: it is read as 0. Efforts are not used; of a driver that measures
    none they are empty or all NaN.

    Raises:
        UnknownNameError: a joint is missing.
        InvalidInputError: lengths differ or a value is not finite.
    """
    index = {name: i for i, name in enumerate(msg.name)}
    for name in names:
        if name not in index:
            raise unknown_name("joint in joint_states", name, index)
    if len(msg.position) != len(msg.name) or len(msg.velocity) not in (0, len(msg.name)):
        raise InvalidInputError(
            f"joint_states: {len(msg.position)} positions and {len(msg.velocity)} velocities for {len(msg.name)} names"
        )
    order = [index[name] for name in names]
    efforts = np.array(msg.effort, np.float64)
    if len(efforts) not in (0, len(msg.name)) or not (np.isfinite(efforts).all() or np.isnan(efforts).all()):
        raise NonFiniteError(f"joint_states: efforts {efforts.tolist()} for {len(msg.name)} names, expected numbers")
    positions = np.array(msg.position, np.float64)[order]
    velocities = np.array(msg.velocity, np.float64)[order] if len(msg.velocity) else np.zeros(len(order))
    return JointState(from_stamp(msg.header.stamp), tuple(names), positions, velocities)
