"""Properties of an object besides its box, from its points: color, occlusion, covariance of its position."""

from __future__ import annotations

import numpy as np

from engram.core.geometry import rotation
from engram.core.types import CameraFrame
from engram.perception.cloud import Cloud
from engram.perception.color import is_chromatic

_IN_FRONT_M = 0.02  # a neighbouring pixel nearer by this hides something


def surface_color(part: Cloud) -> np.ndarray:
    """Return the colour (3,) of a thing: the median of its coloured points if many are, else of all."""
    chromatic = is_chromatic(part.hsv)
    return np.median(part.rgb[chromatic] if chromatic.mean() > 0.3 else part.rgb, axis=0)


def pixel_area(part: Cloud, camera: np.ndarray) -> float:
    """Return the m^2 of a horizontal surface that one pixel sees where ``part`` is."""
    sight = part.points.mean(axis=0) - camera
    slant = abs(float(sight[2])) / float(np.linalg.norm(sight))
    return part.pixel**2 / max(slant, 0.1)


def hidden_share(frame: CameraFrame, part: Cloud) -> float:
    """Return how much (0..1) of the outline of ``part`` borders on something nearer, which hides the rest of it."""
    depth = frame.depth
    assert depth is not None  # the points are made of it
    height, width = frame.color.shape[:2]
    row, column = part.pixels.T
    own = np.zeros((height, width), bool)
    own[row, column] = True
    limit = depth[row, column] - _IN_FRONT_M
    hidden = outline = 0
    for down, right in ((0, 1), (0, -1), (1, 0), (-1, 0)):
        r, c = np.clip(row + down, 0, height - 1), np.clip(column + right, 0, width - 1)
        outside = ~own[r, c]
        outline += int(outside.sum())
        hidden += int((outside & (depth[r, c] > 0) & (depth[r, c] < limit)).sum())
    return hidden / max(outline, 1)


def position_covariance(frame: CameraFrame, part: Cloud, depth_noise: float, unseen: float) -> np.ndarray:
    """Return (3, 3) m^2 in base_link: pixel size across the line of sight, depth noise along it, and what is unseen.

    Args:
        frame: the picture.
        part: the thing's points.
        depth_noise: standard deviation (m) at 1 m; grows with the square of the range.
        unseen: m of the thing that are hidden: its middle may be off by about a quarter of that.
    """
    distance = float(np.linalg.norm(part.points.mean(axis=0) - frame.pose.position))
    across = 0.5 * part.pixel
    along = np.hypot(across, depth_noise * distance**2)
    turn = rotation(frame.pose).as_matrix()
    seen = turn @ np.diag([across**2, across**2, along**2]) @ turn.T
    return seen + np.eye(3) * (0.25 * unseen) ** 2
