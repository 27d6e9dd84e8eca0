"""A camera of the robot's: where it is mounted, what its lens covers, how large its pictures are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.errors import InvalidInputError
from engram.core.types import Pose

BASE_FRAME = "base_link"
Vector = tuple[float, float, float]


@dataclass(frozen=True)
class CameraConfig:
    """A pinhole camera with square pixels and no distortion, mounted on a link of the robot."""

    name: str
    position: Vector  # m, of the optical centre in ``frame``
    right: Vector  # unit vector in ``frame`` towards the right edge of the picture
    up: Vector  # unit vector in ``frame`` towards the upper edge of the picture
    fovy_deg: float = 45.0  # vertical field of view
    frame: str = BASE_FRAME
    """Link that carries it, as the model names it; ``base_link``: it stands beside the robot and never moves."""
    size: tuple[int, int] | None = None
    """Height and width of its pictures [px]; None: square, of the size that the simulation is told."""
    calibration: tuple[float, float, float, float] | None = None
    """Measured fx, fy, cx, cy [px] in pictures of ``size``; None: square pixels, the axis in the middle, ``fovy_deg``.
    The simulation always renders with ``fovy_deg``."""

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name:
            raise InvalidInputError(f"CameraConfig.name: {self.name!r}, expected a word: topics carry it")
        axes = np.array([self.right, self.up])
        if axes.shape != (2, 3) or not np.allclose(axes @ axes.T, np.eye(2), atol=1e-6):
            raise InvalidInputError(
                f"camera {self.name!r}: right {self.right} and up {self.up} are not unit vectors at a right angle"
            )
        if not 0.0 < self.fovy_deg < 180.0:
            raise InvalidInputError(f"camera {self.name!r}: fovy_deg {self.fovy_deg}, expected between 0 and 180")
        if self.size is not None and min(self.size) < 1:
            raise InvalidInputError(f"camera {self.name!r}: size {self.size}, expected height and width in pixels")
        if self.calibration is not None:
            if self.size is None:
                raise InvalidInputError(
                    f"camera {self.name!r}: calibration needs the size of the pictures it was made with"
                )
            if (
                len(self.calibration) != 4
                or not np.isfinite(self.calibration).all()
                or min(self.calibration[:2]) <= 0.0
            ):
                raise InvalidInputError(
                    f"camera {self.name!r}: calibration {self.calibration}, expected fx, fy, cx, cy in pixels"
                )

    @classmethod
    def looking_at(
        cls,
        name: str,
        position: Vector,
        target: Vector,
        *,
        fovy_deg: float = 45.0,
        frame: str = BASE_FRAME,
        size: tuple[int, int] | None = None,
    ) -> CameraConfig:
        """Return the camera at ``position`` that has ``target`` in the middle of its picture, z of ``frame`` upwards.

        Raises:
            InvalidInputError: it would look straight along z, so that nothing is upwards.
        """
        forward = np.subtract(target, position)
        forward = forward / np.linalg.norm(forward)
        right = np.array([forward[1], -forward[0], 0.0])
        if np.linalg.norm(right) < 1e-6:
            raise InvalidInputError(f"camera {name!r} looks along z: give right and up instead")
        right = right / np.linalg.norm(right) + 0.0  # no negative zeros
        up = np.cross(right, forward)
        return cls(name, position, _vector(right), _vector(up), fovy_deg, frame, size)

    @property
    def fixed(self) -> bool:
        """Whether it never moves in base_link."""
        return self.frame == BASE_FRAME

    def pixels(self, default: int) -> tuple[int, int]:
        """Return height and width of its pictures [px], where ``default`` is the simulation's size."""
        return self.size or (default, default)

    def intrinsics(self, height: int, width: int) -> np.ndarray:
        """Return the pinhole matrix K (3, 3) in pixels of pictures of this size, such as larger ones than ``size``."""
        if self.calibration is None or self.size is None:
            return intrinsics(self.fovy_deg, width, height)
        fx, fy, cx, cy = self.calibration
        across, down = width / self.size[1], height / self.size[0]
        return np.array([[fx * across, 0.0, cx * across], [0.0, fy * down, cy * down], [0.0, 0.0, 1.0]])

    def pose(self) -> Pose:
        """Return the pose of the optical frame (x right, y down, z forward) in ``frame``."""
        right, up = np.array(self.right), np.array(self.up)
        axes = np.column_stack((right, -up, np.cross(right, -up)))
        return Pose(np.array(self.position), Rotation.from_matrix(axes).as_quat(scalar_first=True), self.frame)


def intrinsics(fovy_deg: float, width: int, height: int) -> np.ndarray:
    """Return the pinhole matrix K (3, 3) in pixels of a camera with vertical field of view ``fovy_deg``."""
    focal = 0.5 * height / np.tan(np.deg2rad(fovy_deg) / 2.0)
    return np.array([[focal, 0.0, width / 2.0], [0.0, focal, height / 2.0], [0.0, 0.0, 1.0]])


def _vector(values: np.ndarray) -> Vector:
    x, y, z = values.tolist()
    return x, y, z
