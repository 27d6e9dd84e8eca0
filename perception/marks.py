"""Flat marks on the table: no height, only another colour than the table's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from engram.core.types import CameraFrame
from engram.perception.box import Box, smallest_rectangle
from engram.perception.support import Plane


@dataclass(frozen=True)
class MarkConfig:
    """What of the table's pattern is a mark."""

    enabled: bool = True
    """Look for marks at all; switch off on patterned table tops."""
    brighter: float = 1.12
    """A mark is this many times brighter than the table, or differs in hue; what is only darker is a shadow."""
    hue_ratio: float = 1.35
    """Or its channels, relative to the table's, differ by this factor."""
    size_m: tuple[float, float] = (0.03, 0.16)
    """Least and largest extent."""
    max_aspect: float = 1.8
    """Largest ratio of its extents: longer things are edges and lines."""
    min_fill: float = 0.45
    """Least part of its rectangle that it fills; partly hidden marks fill less."""
    min_points: int = 12
    """Fewer pixels are noise."""


def find_marks(
    frame: CameraFrame, points: np.ndarray, table: np.ndarray, plane: Plane, config: MarkConfig
) -> list[tuple[Box, np.ndarray]]:
    """Return box and pixels (N, 2) int row, column of each mark.

    Args:
        frame: the picture.
        points: (H, W, 3) m, base_link.
        table: (H, W) bool, pixels that lie on the table's plane.
        plane: the table.
        config: what counts.
    """
    if not config.enabled or table.sum() < config.min_points:
        return []
    usual = np.median(frame.color[table][::7], axis=0)  # a seventh of the table tells its colour as well
    r, g, b = ((frame.color[..., i] + np.float32(1)) / np.float32(usual[i] + 1) for i in range(3))
    least, most = np.minimum(np.minimum(r, g), b), np.maximum(np.maximum(r, g), b)
    bright, tinted = least > config.brighter, most > config.hue_ratio * least
    inner = ndimage.binary_erosion(table, iterations=1)  # the feet of things have their colours
    labels, count = ndimage.label(inner & (bright | tinted), structure=np.ones((3, 3), int))
    found = []
    for label, window in enumerate(ndimage.find_objects(labels, max_label=count), 1):
        rows, columns = np.nonzero(labels[window] == label)
        if len(rows) >= config.min_points:
            pixels = np.stack((rows + window[0].start, columns + window[1].start), axis=1)
            box = _fit(frame, points[pixels[:, 0], pixels[:, 1]], plane, config)
            if box is not None:
                found.append((box, pixels))
    return found


def _fit(frame: CameraFrame, points: np.ndarray, plane: Plane, config: MarkConfig) -> Box | None:
    """Return the flat box around a mark's points (N, 3), or None when it has not a mark's shape."""
    sight = points.mean(axis=0) - frame.pose.position
    distance = float(np.linalg.norm(sight))
    pixel = distance / frame.intrinsics[0, 0]
    yaw, low, high = smallest_rectangle(points[:, :2])
    size = high - low + 2.0 * pixel  # one pixel was eroded on each side, half of each is its own
    fill = len(points) * pixel**2 / max(abs(sight[2]) / distance, 0.1) / float(np.prod(high - low + pixel))
    if not (config.size_m[0] <= size.min() and size.max() <= config.size_m[1]):
        return None
    if size.max() > config.max_aspect * size.min() or fill < config.min_fill:
        return None
    c, s = np.cos(yaw), np.sin(yaw)
    middle = np.array([[c, -s], [s, c]]) @ (0.5 * (low + high))
    return Box(np.array([*middle, plane.at(middle)]), np.array([*size, 0.001]), yaw)
