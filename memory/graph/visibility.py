"""What a camera frame says about a place: out of view, hidden, seen free, seen filled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engram.core.geometry import from_frame, project
from engram.core.types import SceneObservation

UNSEEN, OCCLUDED, FREE, FILLED = 0, 1, 2, 3
"""Verdicts: not looked at; something is in front; the ray went through; a surface lies where the object was."""


@dataclass(frozen=True)
class VisibilityConfig:
    """DynaMem's rule (Liu et al. 2024): in frame, near enough, not behind what was measured."""

    max_depth_m: float = 2.5
    """Farther places are not judged, nor those that the camera cannot measure (``depth_range_m`` of the scene)."""
    occlusion_m: float = 0.1
    """A place this far behind the measured depth is hidden; where an object's own surface lies nearer to its middle,
    that distance counts instead: a spoon 5 cm under the front of a drawer is hidden, however long it is."""
    depth_noise_m: float = 0.01
    """Added to that distance."""
    border: float = 0.04
    """Share of the image, at each edge, where detectors see objects cut off: not judged."""


def look(
    scene: SceneObservation, places: np.ndarray, sizes: np.ndarray, config: VisibilityConfig | None = None
) -> np.ndarray:
    """Return the verdict (n,) int for ``places`` (n, 3) m in base_link in the middle of
    axis-aligned boxes of ``sizes`` (n, 3) m."""
    config = config or VisibilityConfig()
    verdict = np.full(len(places), UNSEEN)
    if len(places) == 0 or not scene.has_view:
        return verdict
    ahead, depth, measured = _measured(scene, places, config)
    rays = np.abs(places[ahead] - scene.camera_pose.position)
    share_in_box = (sizes[ahead] / 2 / np.maximum(rays, 1e-9)).min(axis=1)  # of the way from the middle to the camera
    hidden = depth - measured > np.minimum(config.occlusion_m, share_in_box * depth + config.depth_noise_m)
    verdict[ahead] = np.where(hidden, OCCLUDED, np.where(measured > depth + config.depth_noise_m, FREE, FILLED))
    return verdict


def surfaces(scene: SceneObservation, places: np.ndarray, config: VisibilityConfig) -> np.ndarray:
    """Return the points (n, 3) m where the rays through ``places`` (n, 3) m end; NaN = not looked at."""
    found = np.full((len(places), 3), np.nan)
    if len(places) and scene.has_view:
        ahead, depth, measured = _measured(scene, places, config)
        eye = scene.camera_pose.position
        found[ahead] = eye + (places[ahead] - eye) * (measured / depth)[:, None]
    return found


def _measured(
    scene: SceneObservation, places: np.ndarray, config: VisibilityConfig
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which of ``places`` (n, 3) m were looked at, and of these the depth and the measured depth (m,) m."""
    points = from_frame(places, scene.camera_pose)
    near, far = reach(scene, config)
    ahead = np.flatnonzero((points[:, 2] > max(1e-3, near)) & (points[:, 2] < far))
    share = project(points[ahead], scene.intrinsics) / scene.image_size  # (m, 2), 0..1 over the image
    framed = ((share > config.border) & (share < 1 - config.border)).all(axis=1)
    ahead, share = ahead[framed], share[framed]
    rows, columns = (share[:, ::-1] * scene.depth_grid.shape).astype(int).T
    measured = scene.depth_grid[rows, columns]
    ahead, measured = ahead[measured > 0], measured[measured > 0]
    return ahead, points[ahead, 2], measured


def reach(scene: SceneObservation, config: VisibilityConfig) -> tuple[float, float]:
    """Return the nearest and the farthest depth [m] at which ``scene`` tells of a place."""
    near, far = scene.depth_range_m
    return near, min(far, config.max_depth_m)
