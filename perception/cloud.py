"""A depth picture as the points of whatever rises above the table."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields

import numpy as np

from engram.core.geometry import backproject, to_frame
from engram.core.types import CameraFrame
from engram.perception.color import to_hsv
from engram.perception.support import Plane


@dataclass(frozen=True)
class Cloud:
    """Points with what the picture says of them; row i of every array is the same pixel."""

    points: np.ndarray  # (N, 3) m, base_link
    pixels: np.ndarray  # (N, 2) int, row and column
    rgb: np.ndarray  # (N, 3) 0..1
    hsv: np.ndarray  # (N, 3) degrees, 0..1, 0..1
    height: np.ndarray  # (N,) m above the table
    spacing: np.ndarray  # (N,) m that one pixel covers at the point's range, across the line of sight

    def __len__(self) -> int:
        return len(self.points)

    @functools.cached_property
    def pixel(self) -> float:
        """m that one pixel covers at the median range, across the line of sight."""
        return float(np.median(self.spacing))

    @functools.cached_property
    def middle(self) -> np.ndarray:
        """Median x and y (2,) m of the points."""
        return np.median(self.points[:, :2], axis=0)

    def take(self, index: np.ndarray) -> Cloud:
        """Return the rows ``index`` (integers or bool)."""
        return Cloud(*(getattr(self, f.name)[index] for f in fields(self)))


def lift(frame: CameraFrame, near: float, far: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the points (H, W, 3) m in base_link and which of them are valid (H, W): finite, ``near`` to ``far`` m."""
    assert frame.depth is not None  # whoever detects has looked
    depth = np.where(np.isfinite(frame.depth), frame.depth, 0.0).astype(np.float64)
    valid = (depth > near) & (depth < far)
    return to_frame(backproject(depth, frame.intrinsics), frame.pose), valid


def above(
    frame: CameraFrame, points: np.ndarray, valid: np.ndarray, plane: Plane, min_height: float
) -> tuple[Cloud, np.ndarray]:
    """Return what rises at least ``min_height`` m above ``plane``, and the pixels (H, W) bool that lie on it."""
    height = np.where(valid, plane.height(points.reshape(-1, 3)).reshape(valid.shape), np.nan)
    return _cloud(frame, points, height, np.argwhere(height >= min_height)), np.abs(height) < min_height


def gather(frame: CameraFrame, points: np.ndarray, pixels: np.ndarray) -> Cloud:
    """Return the cloud of ``pixels`` (N, 2) that lie on the table."""
    return _cloud(frame, points, np.zeros(points.shape[:2]), pixels)


def _cloud(frame: CameraFrame, points: np.ndarray, height: np.ndarray, pixels: np.ndarray) -> Cloud:
    assert frame.depth is not None  # the points are made of it
    at = tuple(pixels.T)
    rgb = frame.color[at] / 255.0
    return Cloud(
        points=points[at],
        pixels=pixels,
        rgb=rgb,
        hsv=to_hsv(rgb),
        height=height[at],
        spacing=frame.depth[at].astype(np.float64) / frame.intrinsics[0, 0],
    )
