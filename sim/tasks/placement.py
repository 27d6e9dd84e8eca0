"""Colours, and random places on the table that do not overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.errors import InvalidInputError
from engram.core.geometry import make_pose
from engram.core.robot import FULL_SIZE_TABLE, TableConfig
from engram.core.types import Pose

COLORS: dict[str, tuple[float, float, float]] = {
    "red": (0.85, 0.10, 0.10),
    "green": (0.10, 0.65, 0.20),
    "blue": (0.10, 0.30, 0.90),
    "yellow": (0.95, 0.80, 0.10),
}
"""Name -> rgb (0..1) of every thing that the words tell apart."""


@dataclass(frozen=True)
class Region:
    """Where a thing may be put, and how much room it needs."""

    x: tuple[float, float]  # m, of the layout: see TableConfig
    y: tuple[float, float]  # m
    radius: float  # m: no other thing's circle overlaps this one's


TABLE = Region(x=(0.40, 0.62), y=(-0.20, 0.20), radius=0.055)
"""Cubes: 11 cm from centre to centre leaves room for an open finger between two of them."""


def place(
    rng: np.random.Generator, regions: Sequence[Region], table: TableConfig = FULL_SIZE_TABLE, attempts: int = 1000
) -> list[np.ndarray]:
    """Draw one centre (2,) m for each region, no two circles overlapping, all or none (rejection sampling).

    The regions are those of the layout; the centres are where they lie on the robot's ``table``.

    Raises:
        InvalidInputError: no arrangement was found, so the regions are too full.
    """
    for _ in range(attempts):
        centres = [np.array([rng.uniform(*region.x), rng.uniform(*region.y)]) for region in regions]
        if all(
            np.linalg.norm(centres[i] - centres[j]) >= regions[i].radius + regions[j].radius
            for i in range(len(regions))
            for j in range(i)
        ):
            return [table.place(centre) for centre in centres]
    raise InvalidInputError(f"place: no room for {len(regions)} things in {attempts} attempts: {list(regions)}")


def upright(xy: np.ndarray, z: float, yaw: float = 0.0) -> Pose:
    """Return the pose at ``xy`` (2,) m and height ``z`` m, turned by ``yaw`` rad about the vertical."""
    return make_pose(np.array([xy[0], xy[1], z]), Rotation.from_euler("z", yaw))


def above(position: np.ndarray, height: float) -> np.ndarray:
    """Return the point (3,) m ``height`` m above ``position`` (3,) m."""
    return position + np.array([0.0, 0.0, height])
