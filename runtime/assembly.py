"""Join messages of the same time stamp into camera frames and observations."""

from __future__ import annotations

import numpy as np

from engram.core.errors import InvalidInputError, StaleDataError, UnknownNameError
from engram.core.stamped_buffer import StampedBuffer
from engram.core.types import CameraFrame, JointState, Observation
from engram.core.words import check_frame
from engram.runtime.transforms import TransformBuffer

KEPT = 16
"""Stamps that are kept while parts are missing."""
NO_POSE = (UnknownNameError, StaleDataError, InvalidInputError)
"""Why tf has no pose: the frame is unknown, not known at that time, or an ancestor of itself."""


class CameraInbox:
    """Joins the parts of one camera's frames: color, depth if wanted, intrinsics, and the camera pose from tf."""

    def __init__(
        self,
        name: str,
        transforms: TransformBuffer,
        *,
        depth: bool,
        optical_frame: str = "",
        base_frame: str = "base_link",
    ) -> None:
        self.name = name
        self.depth = depth
        self._transforms, self._base_frame = transforms, base_frame
        self._optical = optical_frame or f"{name}_optical_frame"
        self.pictures = 0  # colour images that were taken in
        self._intrinsics: np.ndarray | None = None
        self._colors: StampedBuffer[np.ndarray] = StampedBuffer(KEPT)
        self._depths: StampedBuffer[np.ndarray] = StampedBuffer(KEPT)

    def add_color(self, stamp_ns: int, color: np.ndarray, optical_frame: str = "") -> None:
        """Take in a colour image (H, W, 3) uint8 and, if it says so, the frame that it was taken in.

        Raises:
            InvalidInputError: that frame has too long a name.
        """
        check_frame(f"camera {self.name!r} color: frame", optical_frame)
        self.pictures += 1
        self._colors.add(stamp_ns, color)
        self._optical = optical_frame or self._optical

    def add_depth(self, stamp_ns: int, depth: np.ndarray) -> None:
        """Take in a depth image (H, W) float32 [m]."""
        self._depths.add(stamp_ns, depth)

    def set_intrinsics(self, intrinsics: np.ndarray) -> None:
        """Take in the intrinsics (3, 3) [px]: they hold until others come."""
        self._intrinsics = intrinsics

    def arrived(self, stamp_ns: int) -> bool:
        """Whether everything but the pose is there for ``stamp_ns``."""
        has_depth = not self.depth or stamp_ns in self._depths
        return stamp_ns in self._colors and has_depth and self._intrinsics is not None

    def newest(self) -> int | None:
        """Return the newest stamp [ns] with all of its images."""
        stamps = [stamp for stamp in self._colors.stamps if not self.depth or stamp in self._depths]
        return stamps[-1] if stamps else None

    def take(self) -> list[CameraFrame]:
        """Return the frames that have become complete, oldest first; older incomplete ones are given up.

        Raises:
            InvalidInputError: the parts of a frame do not fit together; that frame is given up.
        """
        ready: list[CameraFrame] = []
        for stamp_ns in self._colors.stamps:
            try:
                frame = self.frame(stamp_ns)
            except InvalidInputError:
                self._colors.pop(stamp_ns)
                raise
            if frame is not None:
                ready.append(frame)
        if ready:
            self._colors.pop_through(ready[-1].stamp_ns)
            self._depths.pop_through(ready[-1].stamp_ns)
        return ready

    def newest_color(self) -> int | None:
        """Return the newest stamp [ns] with a colour image, complete or not."""
        return self._colors.newest_ns

    def missing(self, stamp_ns: int) -> list[str]:
        """Name what the frame at ``stamp_ns`` lacks."""
        lacks = [] if stamp_ns in self._colors else ["color"]
        if self.depth and stamp_ns not in self._depths:
            lacks.append("depth")
        if self._intrinsics is None:
            lacks.append("camera_info")
        try:
            self._transforms.lookup(self._base_frame, self._optical, stamp_ns)
        except NO_POSE as error:
            lacks.append(f"tf ({error})")
        return [f"camera {self.name!r} {part}" for part in lacks]

    def frame(self, stamp_ns: int) -> CameraFrame | None:
        """Return the frame at ``stamp_ns``, or None while a part is missing; raises if parts do not fit together."""
        color, depth = self._colors.at(stamp_ns), self._depths.at(stamp_ns)
        if color is None or self._intrinsics is None or (self.depth and depth is None):
            return None
        try:
            pose = self._transforms.lookup(self._base_frame, self._optical, stamp_ns)
        except NO_POSE:
            return None
        return CameraFrame(self.name, stamp_ns, color, self._intrinsics, pose, depth if self.depth else None)


class ObservationInbox:
    """Joint states and every camera's frame of the same instant -> Observation.

    With ``tolerance_s`` 0 the stamps must be equal (a simulation). Otherwise each camera gives its newest frame that
    is not older than that (a robot, whose cameras keep their own time).
    """

    def __init__(self, cameras: list[CameraInbox], tolerance_s: float = 0.0) -> None:
        self.cameras = cameras
        self._tolerance_ns = round(tolerance_s * 1e9)
        self._joints: StampedBuffer[JointState] = StampedBuffer(KEPT)

    def add_joints(self, joints: JointState) -> None:
        """Take in joint states; their stamp is that of the observation."""
        self._joints.add(joints.stamp_ns, joints)

    def take(self) -> list[Observation]:
        """Return what has become complete, oldest first; older incomplete instants are given up.

        Raises:
            InvalidInputError: the parts of an instant do not fit together; that instant is given up.
        """
        ready: list[Observation] = []
        for stamp_ns in self._joints.stamps:
            stamps = [self._stamp_for(camera, stamp_ns) for camera in self.cameras]
            if not all(camera.arrived(at) for camera, at in zip(self.cameras, stamps, strict=True)):
                continue
            try:
                frames = [camera.frame(at) for camera, at in zip(self.cameras, stamps, strict=True)]
            except InvalidInputError:
                self._joints.pop(stamp_ns)
                raise
            joints = self._joints.at(stamp_ns)
            if joints is not None and all(frame is not None for frame in frames):
                ready.append(
                    Observation(stamp_ns, {frame.name: frame for frame in frames if frame is not None}, joints)
                )
        if ready:
            self._joints.pop_through(ready[-1].stamp_ns)
        return ready

    def missing(self) -> list[str]:
        """Name what the oldest waiting instant lacks; empty when nothing waits."""
        stamp_ns = self._joints.oldest_ns
        if stamp_ns is None:
            return []
        return [part for camera in self.cameras for part in camera.missing(self._stamp_for(camera, stamp_ns))]

    def _stamp_for(self, camera: CameraInbox, stamp_ns: int) -> int:
        newest = camera.newest()
        if self._tolerance_ns and newest is not None and abs(stamp_ns - newest) <= self._tolerance_ns:
            return newest
        return stamp_ns
