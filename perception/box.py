"""An upright box around an object of which only the sides towards the camera are seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_ANGLES = np.deg2rad(np.arange(0.0, 90.0, 3.0))


@dataclass(frozen=True)
class Box:
    """Upright box in base_link: turned by ``yaw`` about z."""

    centre: np.ndarray  # (3,) m
    size: np.ndarray  # (3,) m, along its own x, y and z
    yaw: float  # rad
    covered: bool = False  # something stands on it or holds it: its top is hidden
    hangs: bool = False  # in the air: nothing was seen that it stands on

    def local(self, points: np.ndarray) -> np.ndarray:
        """Express points (N, 3) m in the box's axes, in units of its half extents: inside is -1..1."""
        c, s = np.cos(self.yaw), np.sin(self.yaw)
        offset = points - self.centre
        turned = np.stack((c * offset[:, 0] + s * offset[:, 1], c * offset[:, 1] - s * offset[:, 0], offset[:, 2]), 1)
        return turned / (0.5 * self.size)


def fit_box(points: np.ndarray, bottom: float, camera: np.ndarray, spacing: float, top: float | None = None) -> Box:
    """Fit the upright box of an object that stands at height ``bottom``.

    The top face shows the whole footprint, the faces towards the camera show their true place; so the footprint
    is the smallest rectangle around all points, grown by what sampling misses: half a pixel sideways, and half a
    row of pixels, longer on a surface seen at a slant, at the far edge. A footprint whose top is hidden, and so
    its depth, is taken to be as deep as it is wide.

    Args:
        points: (N, 3) m, base_link.
        bottom: m, z of what the object stands on.
        camera: (3,) m, the camera's position.
        spacing: m that one pixel covers across the line of sight.
        top: m, z of what stands on it, which hides its top face; None = nothing does.
    """
    covered = top is not None
    top = float(points[:, 2].max()) if top is None else top
    height = max(top - bottom, 0.5 * spacing)
    sight = points.mean(axis=0) - camera
    sight /= np.linalg.norm(sight)
    row = spacing / max(abs(sight[2]), 0.2)  # a row of pixels on a horizontal surface
    top_share = float(np.mean(points[:, 2] > top - max(0.006, 0.12 * height)))
    away = sight[:2] / max(float(np.linalg.norm(sight[:2])), 1e-9)
    yaw, low, high = smallest_rectangle(points[:, :2])
    c, s = np.cos(yaw), np.sin(yaw)
    away = np.array([c * away[0] + s * away[1], c * away[1] - s * away[0]])  # in the box's axes
    hidden = covered or (top_share < 0.2 and abs(sight[2]) < 0.9)
    low, high = _complete(low, high, away, 0.5 * spacing, 0.5 * row, hidden)
    middle = 0.5 * (low + high)
    centre = np.array([c * middle[0] - s * middle[1], s * middle[0] + c * middle[1], top - 0.5 * height])
    return Box(centre, np.array([*(high - low), height]), float(yaw), covered)


def smallest_rectangle(xy: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Return yaw and the extremes along its axes (2,), (2,) of the rectangle of least area around xy (N, 2)."""
    c, s = np.cos(_ANGLES), np.sin(_ANGLES)
    u = np.outer(c, xy[:, 0]) + np.outer(s, xy[:, 1])
    v = np.outer(c, xy[:, 1]) - np.outer(s, xy[:, 0])
    low = np.stack((u.min(axis=1), v.min(axis=1)), axis=1)
    high = np.stack((u.max(axis=1), v.max(axis=1)), axis=1)
    area = np.prod(high - low, axis=1)
    best = int(area.argmin())
    return float(_ANGLES[best]), low[best], high[best]


def _complete(
    low: np.ndarray, high: np.ndarray, away: np.ndarray, aside: float, behind: float, hidden: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Grow the rectangle by what was not sampled or not seen; ``away`` (2,) points from the camera."""
    low, high = low.copy(), high.copy()
    for axis in range(2):
        along = abs(away[axis])
        grow_far = along * behind + (1 - along) * aside
        grow_near = (1 - along) * aside
        far, near = (high, low) if away[axis] > 0 else (low, high)
        sign = 1.0 if away[axis] > 0 else -1.0
        far[axis] += sign * grow_far
        near[axis] -= sign * grow_near
    deep = int(np.abs(away).argmax())
    missing = (high - low)[1 - deep] - (high - low)[deep]
    if hidden and missing > 0:
        if away[deep] > 0:
            high[deep] += missing
        else:
            low[deep] -= missing
    return low, high
