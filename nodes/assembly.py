"""Subscriptions of what an observation consists of: camera topics and tf, converted and handed to their inbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from tf2_msgs.msg import TFMessage

from engram.core.errors import InvalidInputError
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.claims import writers_of
from engram.nodes.image_topics import subscribe_images
from engram.runtime.assembly import CameraInbox
from engram.runtime.transforms import MOST_FRAMES, SETTLE_S, TransformBuffer


def make_camera(name: str, transforms: TransformBuffer, *, depth: bool) -> CameraInbox:
    """Return the inbox of the camera ``name``, in the frame that its topics use unless they say otherwise."""
    return CameraInbox(name, transforms, depth=depth, optical_frame=messages.optical_frame(name))


def take_color(camera: CameraInbox, msg: Image | CompressedImage) -> None:
    """Take in a colour image; raises for a malformed one."""
    color = messages.color_from_msg(msg, f"camera {camera.name!r} color")
    camera.add_color(messages.from_stamp(msg.header.stamp), color, msg.header.frame_id)


def take_depth(camera: CameraInbox, msg: Image | CompressedImage) -> None:
    """Take in a depth image; raises for a malformed one."""
    depth = messages.depth_from_msg(msg, f"camera {camera.name!r} depth")
    camera.add_depth(messages.from_stamp(msg.header.stamp), depth)


def take_info(camera: CameraInbox, msg: CameraInfo) -> None:
    """Take in the intrinsics; raises for malformed ones."""
    camera.set_intrinsics(messages.intrinsics_from_msg(msg, f"camera {camera.name!r} camera_info"))


def take_transforms(transforms: TransformBuffer, msg: TFMessage, writer: bytes = b"", *, static: bool = False) -> None:
    """Take in poses of ``writer`` that hold at their stamps, or always (``static``)."""
    if len(msg.transforms) > MOST_FRAMES:
        raise InvalidInputError(f"{len(msg.transforms)} frames, at most {MOST_FRAMES}")
    for transform in msg.transforms:
        pose = messages.pose_from_transform(transform)
        if static:
            transforms.add_static(transform.child_frame_id, pose, writer)
        else:
            transforms.add(transform.child_frame_id, messages.from_stamp(transform.header.stamp), pose, writer)


def subscribe_camera(node: EngramNode, camera: CameraInbox, on_part: Callable[[], None]) -> None:
    """Feed ``camera`` from its topics; ``on_part`` is called after each part."""
    profile = qos.sensor_subscription(lockstep=node.config.lockstep)

    def then(take: Callable[[CameraInbox, Any], None]) -> Callable[[Any], None]:
        def call(msg: Any) -> None:
            take(camera, msg)
            on_part()

        return call

    subscribe_images(node, camera.name, "color", then(take_color), profile)
    node.subscribe(CameraInfo, f"camera/{camera.name}/camera_info", then(take_info), profile)
    if camera.depth:
        subscribe_images(node, camera.name, "depth", then(take_depth), profile)


def subscribe_transforms(node: EngramNode, transforms: TransformBuffer, on_part: Callable[[], None]) -> None:
    """Feed ``transforms`` from tf and tf_static; ``on_part`` is called after each message."""

    def taker(*, static: bool) -> Callable[[TFMessage, Any], None]:
        def take(msg: TFMessage, info: Any) -> None:
            for transform in () if static else msg.transforms:
                node.check_stamp(transform)
            take_transforms(transforms, msg, bytes(info["publisher_gid"]["data"]), static=static)
            on_part()

        return take

    node.subscribe(TFMessage, "tf", taker(static=False), qos.TF)
    node.subscribe(TFMessage, "tf_static", taker(static=True), qos.TF_STATIC)
    node.every(SETTLE_S, lambda: transforms.settle(lambda: writers_of(node, "tf_static")), "tf_static")
