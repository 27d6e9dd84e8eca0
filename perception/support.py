"""The surface that objects stand on, found in the points themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import open3d as o3d


@dataclass(frozen=True)
class SupportConfig:
    """How the table is recognised."""

    tolerance_m: float = 0.006
    """Largest distance of a table point from the plane."""
    max_tilt_deg: float = 8.0
    """A plane tilted more than this against base_link's z is a wall or a ramp, not a table."""
    min_share: float = 0.08
    """Least share of the points in view that lie on it; less is a lid, not a table."""
    max_points: int = 2000
    """The image is thinned to about this many points before the search."""
    iterations: int = 40
    """RANSAC draws a plane."""
    max_planes: int = 3
    """Larger planes (walls) that may be found before the table."""


@dataclass(frozen=True)
class Plane:
    """``normal`` . p = ``offset``, normal unit and upward."""

    normal: np.ndarray  # (3,)
    offset: float  # m

    def height(self, points: np.ndarray) -> np.ndarray:
        """Return the signed distance (N,) m of points (N, 3) above the plane."""
        return points @ self.normal - self.offset

    def at(self, xy: np.ndarray) -> float:
        """Return z (m) of the plane over ``xy`` (2,) m."""
        return float((self.offset - self.normal[:2] @ xy) / self.normal[2])


def find_support(points: np.ndarray, config: SupportConfig) -> Plane | None:
    """Return the largest near-horizontal plane in points (N, 3) m, z up; None when there is none.

    RANSAC by Open3D with a fixed seed and a fixed number of draws (its early stop would depend on the order of
    threads), then one least-squares fit to the inliers: the same points always give the same plane.
    """
    rest = points[:: max(1, len(points) // config.max_points)]
    need = max(30, int(config.min_share * len(rest)))
    for _ in range(config.max_planes):
        if len(rest) < need:
            return None
        cloud = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(rest))
        o3d.utility.random.seed(0)
        model, inliers = cloud.segment_plane(config.tolerance_m, 3, config.iterations, probability=1.0)
        if len(inliers) < need:
            return None
        if abs(model[2]) >= np.cos(np.deg2rad(config.max_tilt_deg)):
            return _fit(rest[inliers])
        rest = np.delete(rest, inliers, axis=0)
    return None


def _fit(points: np.ndarray) -> Plane:
    centre = points.mean(axis=0)
    spread = (points - centre).T @ (points - centre)
    normal = np.linalg.eigh(spread)[1][:, 0]  # the direction of least spread
    normal = normal if normal[2] > 0 else -normal
    return Plane(normal, float(normal @ centre))
