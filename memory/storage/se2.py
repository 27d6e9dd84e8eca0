"""SE(2) transforms with a vertical shift, between the frames of two memories or two localisations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.errors import NonFiniteError


@dataclass(frozen=True)
class PlaneTransform:
    """p_ours = turn(yaw) p_theirs + shift. Raises NonFiniteError where a number is none."""

    yaw: float  # rad, about z
    shift: np.ndarray  # (3,) m
    inliers: int = 0
    spread_m: float = 0.0  # root mean square distance of the inliers

    def __post_init__(self) -> None:
        numbers = (*self.shift.tolist(), self.yaw)
        if not np.isfinite(numbers).all():
            raise NonFiniteError(f"transform: x, y, z, yaw {numbers}, expected finite numbers")

    def apply(self, points: np.ndarray) -> np.ndarray:
        """Return points (..., 3) m of their frame in ours."""
        return points @ Rotation.from_euler("z", self.yaw).as_matrix().T + self.shift


def fit(a: np.ndarray, b: np.ndarray) -> PlaneTransform:
    """Return the least-squares turn and shift that bring ``b`` (n, 3) onto ``a`` (Umeyama, 1991, in the plane)."""
    da, db = a - a.mean(axis=0), b - b.mean(axis=0)
    cross = (db[:, 0] * da[:, 1] - db[:, 1] * da[:, 0]).sum()
    yaw = float(np.arctan2(cross, (db[:, :2] * da[:, :2]).sum()))
    turned = Rotation.from_euler("z", yaw).apply(b.mean(axis=0))
    return PlaneTransform(yaw, a.mean(axis=0) - turned)
