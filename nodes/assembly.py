"""Subscriptions of what an observation consists of: camera topics and tf, converted and handed to their inbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from tf2_msgs.msg import TFMessage

from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.image_topics import subscribe_images
from engram.runtime.assembly import CameraInbox
from engram.runtime.transforms import TransformBuffer


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


def take_transforms(transforms: TransformBuffer, msg: TFMessage, *, static: bool = False) -> None:
    """Take in poses that hold at their stamps, or always (``static``)."""
    for transform in msg.transforms:
        pose = messages.pose_from_transform(transform)
        if static:
            transforms.add_static(transform.child_frame_id, pose)
        else:
            transforms.add(transform.child_frame_id, messages.from_stamp(transform.header.stamp), pose)


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

    def moving(msg: TFMessage) -> None:
        for transform in msg.transforms:
            node.check_stamp(transform)
        take_transforms(transforms, msg)
        on_part()

    def static(msg: TFMessage) -> None:
        take_transforms(transforms, msg, static=True)
        on_part()

    node.subscribe(TFMessage, "tf", moving, qos.TF)
    node.subscribe(TFMessage, "tf_static", static, qos.TF_STATIC)
