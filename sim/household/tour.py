"""The robot's round through the home: where it stops, what it opens, and how well it knows its own position."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.geometry import from_frame, make_pose, rotation
from engram.core.types import EMBEDDING_DIM, Pose, SceneNode, SceneObservation
from engram.perception.region import Region
from engram.sim.household.layout import HEADROOM_M, REACH_M, ROOM_M, Home, Spot
from engram.sim.household.world import HouseholdWorld

VIEWS_M = (-0.14, 0.0, 0.14)
"""A look is three frames, taken this far to the left of the stop [m]."""
STOP_NS = 30_000_000_000
"""Time from one stop to the next."""
_FRAME_NS = 700_000_000


@dataclass(frozen=True)
class TourConfig:
    """How well the robot knows where it is, and how often it opens things."""

    place_sigma_m: float = 0.008
    """Error of the base's place, the same for the whole stop; a third of it again in every frame."""
    yaw_sigma_rad: float = 0.004
    """Error of the base's direction."""
    open_chance: float = 0.35
    """Chance that a visit opens a drawer or cupboard: about once a day each."""


@dataclass(frozen=True)
class Sight:
    """One frame as the memory gets it, and what the simulator knows about it."""

    scene: SceneObservation  # in the map
    oracle_things: tuple[str | None, ...]  # the thing behind each object; None: a false detection


class Sense(Protocol):
    """How a look becomes observations: by rendered images, or by a model of the sensor."""

    def look(self, world: HouseholdWorld, views: Sequence[tuple[np.ndarray, Pose, int]], spot: Spot) -> list[Sight]:
        """Look at ``spot`` from views of (true base (3,): x, y, yaw; believed base pose in the map; stamp ns)."""


def route(home: Home, start: np.ndarray, spots: Collection[str]) -> list[str]:
    """Return ``spots`` in the order of a round: always on to the nearest one left."""
    here, left, order = start, sorted(spots), []
    while left:
        nearest = min(left, key=lambda name: home.metres(here, home.spots[name].stop))
        left.remove(nearest)
        order.append(nearest)
        here = home.spots[nearest].stop
    return order


class Inspector:
    """Drives the base from stop to stop and looks; its noise depends on ``seed`` only."""

    def __init__(self, world: HouseholdWorld, sense: Sense, seed: int, config: TourConfig | None = None) -> None:
        self.world, self.sense = world, sense
        self.config = config or TourConfig()
        self._rng = np.random.default_rng([seed, 2])

    def visit(self, stamp_ns: int) -> Iterator[tuple[str, list[Sight]]]:
        """Yield (spot, its frames) of one round; drawers and cupboards are opened now and then."""
        spots = [s.name for s in self.world.home.spots.values() if not s.closed or self._opens()]
        for i, name in enumerate(route(self.world.home, self.world.home.dock, spots)):
            yield name, self.look(name, stamp_ns + i * STOP_NS)

    def look(self, spot: str, stamp_ns: int) -> list[Sight]:
        """Stop in front of ``spot``, open it if it is closed, and take the frames of one look."""
        where = self.world.home.spots[spot]
        self.world.open(spot if where.closed else None)
        error = self._rng.normal(size=3) * self._sigma()
        views = []
        for i, true in enumerate(views_of(where)):
            told = true + error + self._rng.normal(size=3) * self._sigma() / 3
            base = make_pose(np.array([*told[:2], 0.0]), Rotation.from_euler("z", told[2]), "map")
            views.append((true, base, stamp_ns + i * _FRAME_NS))
        return self.sense.look(self.world, views, where)

    def _opens(self) -> bool:
        return bool(self._rng.random() < self.config.open_chance)

    def _sigma(self) -> np.ndarray:
        return np.array([self.config.place_sigma_m, self.config.place_sigma_m, self.config.yaw_sigma_rad])


def views_of(spot: Spot) -> list[np.ndarray]:
    """Return where the base stands, x, y (m), yaw (rad), for each frame of a look."""
    left = np.array([-np.sin(spot.yaw), np.cos(spot.yaw)])
    return [spot.stop + np.array([*(aside * left), -np.arctan2(aside, REACH_M)]) for aside in VIEWS_M]


def base_covariance(config: TourConfig | None = None) -> np.ndarray:
    """Return (3, 3) m^2 by which the base's own error spreads what is seen about 0.9 m away."""
    config = config or TourConfig()
    across = config.place_sigma_m**2 + (0.9 * config.yaw_sigma_rad) ** 2
    return np.diag([across, across, 1e-6])


def region_of(spot: Spot, base: Pose) -> Region:
    """Return the air above ``spot`` in base_link, as a robot that believes to be at ``base`` (map) sees it."""
    middle = spot.to_map(np.array([0.0, 0.0, 0.5 * (HEADROOM_M - 0.04)]))
    turn = rotation(base).inv() * Rotation.from_euler("z", spot.yaw)
    half = np.array([0.5 * spot.depth + 0.02, 0.5 * spot.width + 0.02, 0.5 * (HEADROOM_M + 0.04)])
    return Region(make_pose(from_frame(middle, base), turn), half)


def map_nodes(home: Home) -> list[SceneNode]:
    """Return the rooms and furniture of the robot's map as graph nodes; their ids are the memory's to give.

    A surface is a board that things lie on; a drawer or cupboard reaches up to its headroom, so that they lie in it.
    """
    rooms = [
        _node("room", name, np.array([*middle, 0.95]), 0.0, np.array([ROOM_M, ROOM_M, 1.9]))
        for name, middle in home.rooms.items()
    ]
    return rooms + [_furniture(spot) for spot in home.spots.values()]


def _furniture(spot: Spot) -> SceneNode:
    top = HEADROOM_M if spot.closed else 0.0
    centre = spot.to_map(np.array([0.0, 0.0, 0.5 * (top - 0.04)]))
    return _node("place", spot.name, centre, spot.yaw, np.array([spot.depth, spot.width, top + 0.04]))


def _node(layer: str, label: str, centre: np.ndarray, yaw: float, size: np.ndarray) -> SceneNode:
    return SceneNode(
        id="",
        layer=layer,
        label=label,
        pose=make_pose(centre, Rotation.from_euler("z", yaw), "map"),
        position_covariance=np.zeros((3, 3)),
        size=size,
        color=np.full(3, 0.5),
        embedding=np.zeros(EMBEDDING_DIM, np.float32),
        belief=1.0,
        state="visible",
        first_seen_ns=0,
        last_seen_ns=0,
        observations=0,
    )
