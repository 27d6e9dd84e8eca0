"""What a robot must not touch, and how far it stays away: part of its configuration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engram.core.errors import InvalidInputError


@dataclass(frozen=True)
class Obstacle:
    """A box that the robot must not touch, in base_link; its faces are upright."""

    name: str
    position: tuple[float, float, float]
    """Centre [m]."""
    size: tuple[float, float, float]
    """Full extents along its own axes [m]."""
    yaw_rad: float = 0.0
    """Turn about the vertical [rad]."""

    def __post_init__(self) -> None:
        numbers = (*self.position, *self.size, self.yaw_rad)
        if len(self.position) != 3 or len(self.size) != 3 or not np.isfinite(numbers).all():
            raise InvalidInputError(f"Obstacle {self.name!r}: expected three finite metres for position and for size")
        if not min(self.size) > 0:
            raise InvalidInputError(f"Obstacle {self.name!r}: size {self.size}, expected numbers above 0")


@dataclass(frozen=True)
class CollisionConfig:
    """The distances that a robot keeps. Below zero, its shapes may overlap by so much: contact is wanted there."""

    self_margin_m: float = 0.005
    """Between its links [m]."""
    table_margin_m: float = 0.01
    """Between the table, z = 0 in base_link, and the links that carry the hand [m]."""
    hand_table_margin_m: float = 0.0
    """Between the table and the hand with its fingers, which pick things up from it [m]."""
    obstacle_margin_m: float = 0.01
    """Between any moving link and an obstacle [m]."""
    obstacles: tuple[Obstacle, ...] = ()
    """Boxes that always stand there."""

    def __post_init__(self) -> None:
        for name in ("self_margin_m", "table_margin_m", "hand_table_margin_m", "obstacle_margin_m"):
            if not np.isfinite(getattr(self, name)):
                raise InvalidInputError(f"CollisionConfig.{name}: {getattr(self, name)}, expected a finite number")
        names = [obstacle.name for obstacle in self.obstacles]
        if len(set(names)) < len(names):
            raise InvalidInputError(f"CollisionConfig.obstacles: {', '.join(names)}: a name twice")


USUAL_DISTANCES = CollisionConfig()
