"""Camera frames for tests that need one but do not look at it."""

from __future__ import annotations

import numpy as np

from engram.core.types import CameraFrame, Pose


def camera_frame(stamp_ns: int = 0, *, name: str = "front", shade: int = 0, size: int = 8) -> CameraFrame:
    """Return an evenly grey frame with depth 1 m, seen from the base's origin."""
    color = np.full((size, size, 3), shade, np.uint8)
    intrinsics = np.array([[size, 0, size / 2], [0, size, size / 2], [0, 0, 1.0]])
    pose = Pose(np.zeros(3), np.array([1.0, 0, 0, 0]))
    return CameraFrame(name, stamp_ns, color, intrinsics, pose, np.ones((size, size), np.float32))
