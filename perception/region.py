"""Detection within a box in space, such as the air above a table that the robot's map knows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from engram.core.contracts import Detector
from engram.core.errors import InvalidInputError
from engram.core.geometry import backproject, from_frame, rotation, to_frame
from engram.core.types import CameraFrame, Pose, SceneObservation
from engram.perception.scene import depth_grid


@dataclass(frozen=True)
class Region:
    """A box around ``pose``'s origin, along its axes."""

    pose: Pose  # in base_link
    half: np.ndarray  # (3,) m, half of its extents


def detect_in(detector: Detector, frame: CameraFrame, region: Region) -> SceneObservation:
    """Return what ``detector`` finds within ``region`` of ``frame``; the observation says nothing about the rest.

    Raises:
        InvalidInputError: ``frame`` has no depth.
    """
    if frame.depth is None:
        raise InvalidInputError(f"camera {frame.name!r}: no depth; a region needs an RGB-D frame")
    points = to_frame(backproject(np.nan_to_num(frame.depth), frame.intrinsics), frame.pose)
    inside = (np.abs(from_frame(points, region.pose)) <= region.half).all(axis=-1)
    scene = detector.detect(replace(frame, depth=np.where(inside, frame.depth, np.float32(0.0))))
    return attend(replace(scene, depth_grid=depth_grid(frame.depth)), region)


def attend(scene: SceneObservation, region: Region) -> SceneObservation:
    """Return ``scene`` with a depth grid that judges ``region`` only.

    Rays that miss the region have no return (0: not looked at); rays that leave it end where they do, so that what
    lies behind it counts as hidden, and what should be in it but let the ray through as absent.
    """
    rows, columns = scene.depth_grid.shape
    width, height = scene.image_size
    u, v = np.meshgrid((np.arange(columns) + 0.5) * width / columns, (np.arange(rows) + 0.5) * height / rows)
    k = scene.intrinsics
    rays = np.stack(((u - k[0, 2]) / k[0, 0], (v - k[1, 2]) / k[1, 1], np.ones_like(u)), axis=-1)  # per m of depth
    turn = rotation(scene.camera_pose).inv() * rotation(region.pose)  # region axes in the optical frame
    origin = from_frame(scene.camera_pose.position, region.pose)
    slope = rays @ turn.as_matrix()
    slope = np.where(np.abs(slope) < 1e-9, 1e-9, slope)
    near, far = (-region.half - origin) / slope, (region.half - origin) / slope
    enter, leave = np.minimum(near, far).max(axis=-1), np.maximum(near, far).min(axis=-1)
    crosses = (leave > np.maximum(enter, 0.0)) & (scene.depth_grid > 0)
    return replace(scene, depth_grid=np.where(crosses, np.minimum(scene.depth_grid, leave), 0.0).astype(np.float32))
