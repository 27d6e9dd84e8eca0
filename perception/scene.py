"""Helpers with which detectors build a SceneObservation."""

from __future__ import annotations

import numpy as np

from engram.core.types import CameraFrame, DetectedObject, SceneObservation

GRID = 64
"""Cells of the coarse depth grid along the longer side of the image."""


def depth_grid(depth: np.ndarray, cells: int = GRID) -> np.ndarray:
    """Thin a depth image (H, W) m to about ``cells`` x ``cells`` float32: nearest return a cell, 0 = none.

    The nearest one is kept, because the memory uses the grid to decide whether a place is occluded.
    """
    height, width = depth.shape
    step = max(1, -(-max(height, width) // cells))
    rows, columns = -(-height // step), -(-width // step)
    padded = np.full((rows * step, columns * step), np.inf, np.float32)
    padded[:height, :width] = np.where(np.isfinite(depth) & (depth > 0), depth, np.inf)
    nearest = padded.reshape(rows, step, columns, step).min(axis=(1, 3))
    return np.where(np.isfinite(nearest), nearest, 0.0).astype(np.float32)


def scene_observation(frame: CameraFrame, objects: tuple[DetectedObject, ...]) -> SceneObservation:
    """Return ``objects`` with what ``frame`` (which has depth) looked at."""
    assert frame.depth is not None
    return SceneObservation(
        stamp_ns=frame.stamp_ns,
        camera=frame.name,
        objects=objects,
        camera_pose=frame.pose,
        intrinsics=frame.intrinsics,
        image_size=(frame.color.shape[1], frame.color.shape[0]),
        depth_grid=depth_grid(frame.depth),
    )
