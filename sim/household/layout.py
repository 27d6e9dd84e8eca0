"""Where the rooms, furniture and doors of a seeded home are. The map frame's z is up; the floor is z = 0."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import networkx as nx
import numpy as np

ROOM_M = 4.6
"""Rooms are square."""
WALL_M, WALL_HEIGHT_M, DOOR_M = 0.08, 1.9, 0.9
ROOM_NAMES = ("kitchen", "living room", "bedroom", "study", "bathroom", "hall")
SURFACES: dict[str, tuple[float, float, float]] = {
    "table": (0.74, 0.60, 1.00),
    "counter": (0.90, 0.60, 1.00),
    "coffee table": (0.46, 0.55, 0.95),
    "shelf": (0.80, 0.50, 1.00),
    "nightstand": (0.55, 0.50, 0.60),
}
"""Open furniture: height, depth, width [m]."""
CONTAINERS: dict[str, tuple[float, float, float]] = {"drawer": (0.52, 0.40, 0.60), "cupboard": (0.84, 0.40, 0.74)}
"""What is closed unless it is looked into: height of its floor, depth, width [m]."""
SLOT_M = 0.13
"""Things stand on a grid this wide, with some jitter."""
REACH_M = 0.78
"""A stop is so far in front of the middle of what is looked at."""
HEADROOM_M = 0.22
"""Things on a surface lie within this height above it."""
_BOUNDARY = 0.03


@dataclass(frozen=True)
class Spot:
    """A surface that things stand on, or the inside of a drawer or cupboard.

    ``yaw`` is the direction (rad, map) in which a robot in front of it looks. What lies in a drawer has its place
    where it is found: with the drawer open.
    """

    name: str
    room: str
    kind: str
    centre: np.ndarray  # (3,) m, map: middle of the surface
    yaw: float
    depth: float  # m, along the line of sight
    width: float  # m

    @property
    def closed(self) -> bool:
        """Whether it must be opened to look inside."""
        return self.kind in CONTAINERS

    def axes(self) -> np.ndarray:
        """Return the (3, 3) rotation from its axes to the map's."""
        c, s = np.cos(self.yaw), np.sin(self.yaw)
        return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])

    def to_map(self, local: np.ndarray) -> np.ndarray:
        """Express (..., 3) m in the map: x away from the robot, y to its left, z above the surface."""
        return np.asarray(local) @ self.axes().T + self.centre

    def to_local(self, points: np.ndarray) -> np.ndarray:
        """Express map points (..., 3) m in the spot's axes; the inverse of :meth:`to_map`."""
        return (np.asarray(points) - self.centre) @ self.axes()

    def holds(self, points: np.ndarray, margin: float = 0.0) -> np.ndarray:
        """Tell which map points (..., 3) m are on or in it."""
        local = self.to_local(points)
        half = np.array([0.5 * self.depth, 0.5 * self.width]) + margin
        low, high = -0.05 - margin, HEADROOM_M + margin
        return (np.abs(local[..., :2]) <= half).all(-1) & (local[..., 2] >= low) & (local[..., 2] <= high)

    @cached_property
    def slots(self) -> np.ndarray:
        """Return the places (n, 2) m, in the spot's axes, that things may stand at."""
        rows = _line(self.depth - 0.16)
        columns = _line(self.width - 0.14)
        return np.array([(x, y) for x in rows for y in columns])

    @property
    def stop(self) -> np.ndarray:
        """Where the base stands to look at it: x, y (m), yaw (rad) in the map."""
        ahead = np.array([np.cos(self.yaw), np.sin(self.yaw)])
        return np.array([*(self.centre[:2] - REACH_M * ahead), self.yaw])


@dataclass(frozen=True)
class Home:
    """One seeded home; two homes of one seed are equal."""

    seed: int
    rooms: dict[str, np.ndarray]  # name -> (2,) m, its middle in the map
    spots: dict[str, Spot]
    doors: dict[tuple[str, str], np.ndarray]  # two rooms -> (2,) m, the middle of the door between them

    @property
    def dock(self) -> np.ndarray:
        """Where the robot charges: x, y (m), yaw (rad)."""
        return np.array([*next(iter(self.rooms.values())), 0.0])

    def room_of(self, point: np.ndarray) -> str:
        """Return the room whose middle is nearest to a map point (2+,) m."""
        return min(self.rooms, key=lambda name: float(np.abs(self.rooms[name] - point[:2]).max()))

    def spot_of(self, point: np.ndarray) -> str | None:
        """Return the spot that holds a map point (3,) m, or None."""
        return next((name for name, spot in self.spots.items() if bool(spot.holds(point, _BOUNDARY))), None)

    def metres(self, start: np.ndarray, goal: np.ndarray) -> float:
        """Return the length of the way between two map points (2+,) m, through the doors."""
        first, last = self.room_of(start), self.room_of(goal)
        if first == last:
            return float(np.linalg.norm(np.asarray(start)[:2] - np.asarray(goal)[:2]))
        return min(
            float(np.linalg.norm(start[:2] - self.doors[out])) + self._between(out, into)
            + float(np.linalg.norm(goal[:2] - self.doors[into]))
            for out in self.doors if first in out
            for into in self.doors if last in into
        )  # fmt: skip

    def _between(self, one: tuple[str, str], other: tuple[str, str]) -> float:
        return self._door_distances[one][other]

    @cached_property
    def _door_distances(self) -> dict[tuple[str, str], dict[tuple[str, str], float]]:
        graph = nx.Graph()
        graph.add_nodes_from(self.doors)
        for one in self.doors:
            for other in self.doors:
                if one < other and set(one) & set(other):
                    graph.add_edge(one, other, weight=float(np.linalg.norm(self.doors[one] - self.doors[other])))
        return dict(nx.all_pairs_dijkstra_path_length(graph))


def make_home(seed: int) -> Home:
    """Draw a home: 4 to 6 rooms on a grid, each with three open surfaces and one or two drawers or cupboards."""
    rng = np.random.default_rng([seed, 0])
    count = 4 + seed % 3
    names = [ROOM_NAMES[i] for i in (*rng.permutation(4), *range(4, 6))][:count]
    cells = [(i // 2, i % 2) for i in range(count)]
    rooms = {name: ROOM_M * np.array(cell, float) for name, cell in zip(names, cells, strict=True)}
    doors = {}
    for i, one in enumerate(names):
        for j, other in enumerate(names[:i]):
            if sum(abs(a - b) for a, b in zip(cells[i], cells[j], strict=True)) == 1:
                key = (min(one, other), max(one, other))
                doors[key] = 0.5 * (rooms[one] + rooms[other])
    spots: dict[str, Spot] = {}
    for name, middle in rooms.items():
        wanted = [
            *rng.choice(list(SURFACES), 3, replace=False),
            *rng.choice(list(CONTAINERS), 1 + int(rng.random() < 0.4)),
        ]
        corners = rng.permutation(8)[: len(wanted)]
        for kind, corner in zip(wanted, corners, strict=True):
            spot = _furnish(name, middle, str(kind), int(corner), rng)
            while spot.name in {s.name for s in spots.values()}:
                spot = replace(spot, name=f"second {spot.name}")
            spots[spot.name] = spot
    return Home(seed, rooms, spots, doors)


def _furnish(room: str, middle: np.ndarray, kind: str, corner: int, rng: np.random.Generator) -> Spot:
    """Put a piece against one of four walls, left or right of where a door may be."""
    height, depth, width = {**SURFACES, **CONTAINERS}[kind]
    yaw = (corner // 2) * np.pi / 2
    side = (1.08 + rng.uniform(-0.05, 0.05)) * (1 if corner % 2 else -1)
    inset = 0.5 * ROOM_M - 0.5 * WALL_M - 0.5 * depth - 0.01
    if kind == "drawer":
        inset -= depth  # it slides out by its depth
    ahead, left = np.array([np.cos(yaw), np.sin(yaw)]), np.array([-np.sin(yaw), np.cos(yaw)])
    centre = np.array([*(middle + inset * ahead + side * left), height + rng.uniform(-0.03, 0.03)])
    return Spot(f"{kind} in the {room}", room, kind, centre, float(yaw), depth, width)


def _line(length: float) -> np.ndarray:
    count = max(1, int(length / SLOT_M) + 1)
    return (np.arange(count) - 0.5 * (count - 1)) * SLOT_M
