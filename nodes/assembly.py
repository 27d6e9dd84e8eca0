"""Messages of one instant, arriving apart -> camera frames and observations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sensor_msgs.msg import CameraInfo, Image
from tf2_msgs.msg import TFMessage

from engram.core.errors import StaleDataError, UnknownNameError
from engram.core.types import CameraFrame, JointState, Observation
from engram.nodes import messages, qos
from engram.nodes.base import EngramNode
from engram.nodes.transforms import TransformBuffer

KEPT = 16
"""Instants kept while they wait for their missing parts."""


BACK_NS = 1_000_000_000
"""A stamp that lies this far before the newest means that time began anew: the simulation was restarted."""


def _began_anew(by_stamp: dict[int, Any], stamp_ns: int) -> bool:
    return bool(by_stamp) and stamp_ns < max(by_stamp) - BACK_NS


def _keep_newest(by_stamp: dict[int, Any]) -> None:
    while len(by_stamp) > KEPT:
        del by_stamp[min(by_stamp)]


class CameraInbox:
    """The parts of one camera's frames: colour, depth when wanted, intrinsics, and the pose from tf."""

    def __init__(self, name: str, transforms: TransformBuffer, *, depth: bool, base_frame: str = "base_link") -> None:
        self.name = name
        self.depth = depth
        self._transforms, self._base_frame = transforms, base_frame
        self._optical = messages.optical_frame(name)
        self._intrinsics: np.ndarray | None = None
        self._colors: dict[int, np.ndarray] = {}
        self._depths: dict[int, np.ndarray] = {}

    def on_color(self, msg: Image) -> None:
        """Take in a colour image; raises for a malformed one."""
        stamp_ns = messages.from_stamp(msg.header.stamp)
        color = messages.color_from_msg(msg, f"camera {self.name!r} color")
        if _began_anew(self._colors, stamp_ns):
            self._colors.clear()
            self._depths.clear()
        self._colors[stamp_ns] = color
        self._optical = msg.header.frame_id or self._optical
        _keep_newest(self._colors)

    def on_depth(self, msg: Image) -> None:
        """Take in a depth image; raises for a malformed one."""
        self._depths[messages.from_stamp(msg.header.stamp)] = messages.depth_from_msg(
            msg, f"camera {self.name!r} depth"
        )
        _keep_newest(self._depths)

    def on_info(self, msg: CameraInfo) -> None:
        """Take in the intrinsics: they hold until others come."""
        self._intrinsics = messages.intrinsics_from_msg(msg, f"camera {self.name!r} camera_info")

    def arrived(self, stamp_ns: int) -> bool:
        """Whether everything but the pose is there for ``stamp_ns``."""
        has_depth = not self.depth or stamp_ns in self._depths
        return stamp_ns in self._colors and has_depth and self._intrinsics is not None

    def newest(self) -> int | None:
        """Return the newest stamp [ns] with all of its images."""
        stamps = self._colors.keys() & self._depths.keys() if self.depth else self._colors.keys()
        return max(stamps, default=None)

    def newest_color(self) -> int | None:
        """Return the newest stamp [ns] with a colour image, complete or not."""
        return max(self._colors, default=None)

    def missing(self, stamp_ns: int) -> list[str]:
        """Name what the frame at ``stamp_ns`` lacks."""
        lacks = [] if stamp_ns in self._colors else ["color"]
        if self.depth and stamp_ns not in self._depths:
            lacks.append("depth")
        if self._intrinsics is None:
            lacks.append("camera_info")
        try:
            self._transforms.lookup(self._base_frame, self._optical, stamp_ns)
        except (UnknownNameError, StaleDataError) as error:
            lacks.append(f"tf ({error})")
        return [f"camera {self.name!r} {part}" for part in lacks]

    def frame(self, stamp_ns: int) -> CameraFrame | None:
        """Return the frame at ``stamp_ns``, or None while a part is missing; raises if parts do not fit together."""
        if not self.arrived(stamp_ns):
            return None
        try:
            pose = self._transforms.lookup(self._base_frame, self._optical, stamp_ns)
        except (UnknownNameError, StaleDataError):
            return None
        depth = self._depths[stamp_ns] if self.depth else None
        assert self._intrinsics is not None
        return CameraFrame(self.name, stamp_ns, self._colors[stamp_ns], self._intrinsics, pose, depth)

    def subscribe(self, node: EngramNode, on_part: Callable[[], None]) -> None:
        """Subscribe to the camera's topics; ``on_part`` is called after each part."""
        profile = qos.sensor_subscription(lockstep=node.config.lockstep)
        base = f"camera/{self.name}"

        def then(take: Callable) -> Callable:
            def call(msg: object) -> None:
                take(msg)
                on_part()

            return call

        node.subscribe(Image, f"{base}/color/image_raw", then(self.on_color), profile)
        node.subscribe(CameraInfo, f"{base}/camera_info", then(self.on_info), profile)
        if self.depth:
            node.subscribe(Image, f"{base}/depth/image_raw", then(self.on_depth), profile)


class ObservationInbox:
    """Joint states and every camera's frame of the same instant -> Observation.

    With ``tolerance_s`` 0 the stamps must be equal (a simulation). Otherwise each camera gives its newest frame that
    is not older than that (a robot, whose cameras keep their own time).
    """

    def __init__(self, cameras: list[CameraInbox], tolerance_s: float = 0.0) -> None:
        self.cameras = cameras
        self._tolerance_ns = round(tolerance_s * 1e9)
        self._joints: dict[int, JointState] = {}

    def on_joints(self, joints: JointState) -> None:
        """Take in joint states; their stamp is that of the observation."""
        if _began_anew(self._joints, joints.stamp_ns):
            self._joints.clear()
        self._joints[joints.stamp_ns] = joints
        _keep_newest(self._joints)

    def take(self) -> list[Observation]:
        """Return what has become complete, oldest first; older incomplete instants are given up."""
        ready: list[Observation] = []
        for stamp_ns in sorted(self._joints):
            stamps = [self._stamp_for(camera, stamp_ns) for camera in self.cameras]
            if not all(camera.arrived(at) for camera, at in zip(self.cameras, stamps, strict=True)):
                continue
            frames = [camera.frame(at) for camera, at in zip(self.cameras, stamps, strict=True)]
            if all(frame is not None for frame in frames):
                cameras = {frame.name: frame for frame in frames if frame is not None}
                ready.append(Observation(stamp_ns, cameras, self._joints[stamp_ns]))
        if ready:
            self._joints = {stamp: joints for stamp, joints in self._joints.items() if stamp > ready[-1].stamp_ns}
        return ready

    def missing(self) -> list[str]:
        """Name what the oldest waiting instant lacks; empty when nothing waits."""
        if not self._joints:
            return []
        stamp_ns = min(self._joints)
        return [part for camera in self.cameras for part in camera.missing(self._stamp_for(camera, stamp_ns))]

    def clear(self) -> None:
        """Forget instants that wait."""
        self._joints.clear()

    def _stamp_for(self, camera: CameraInbox, stamp_ns: int) -> int:
        newest = camera.newest()
        if self._tolerance_ns and newest is not None and abs(stamp_ns - newest) <= self._tolerance_ns:
            return newest
        return stamp_ns


def subscribe_transforms(node: EngramNode, transforms: TransformBuffer, on_part: Callable[[], None]) -> None:
    """Feed ``transforms`` from tf and tf_static."""

    def moving(msg: TFMessage) -> None:
        transforms.add(msg)
        on_part()

    def static(msg: TFMessage) -> None:
        transforms.add_static(msg)
        on_part()

    node.subscribe(TFMessage, "tf", moving, qos.TF)
    node.subscribe(TFMessage, "tf_static", static, qos.TF_STATIC)
