"""The home as a MuJoCo model of primitives: rendered by the robot's camera, and asked by rays.

Nothing moves by physics here: things, drawers, doors and the mobile base are put where they are, and then looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.camera import intrinsics
from engram.core.geometry import make_pose, to_frame
from engram.core.types import CameraFrame, Pose
from engram.sim.household.kinds import Kind
from engram.sim.household.layout import DOOR_M, ROOM_M, WALL_HEIGHT_M, WALL_M, Home, Spot
from engram.sim.render import SceneRenderer

WIDTH, HEIGHT, FOVY_DEG = 256, 192, 58.0
"""The robot's RGB-D camera [px, degrees]."""
EYE = Pose(
    np.array([0.15, 0.0, 1.42]),
    (Rotation.from_euler("y", 45, degrees=True) * Rotation.from_matrix([[0, 0, 1], [-1, 0, 0], [0, -1, 0]])).as_quat(
        canonical=True, scalar_first=True
    ),
)
"""The camera's optical frame in base_link: on a mast, looking down by 45 degrees."""
_BOX, _CYLINDER = mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CYLINDER
_WALL, _FLOOR, _FURNITURE, _INSIDE = (
    (0.86, 0.85, 0.83, 1),
    (0.62, 0.61, 0.60, 1),
    (0.72, 0.70, 0.68, 1),
    (0.8, 0.8, 0.8, 1),
)
_AWAY = np.array([0.0, 0.0, -5.0])


@dataclass(frozen=True)
class Placement:
    """Where a thing is."""

    spot: str
    position: np.ndarray  # (3,) m, map: the middle of its box
    yaw: float = 0.0


class HouseholdWorld:
    """One home with ``things`` (id -> kind), a mobile base and its camera."""

    def __init__(self, home: Home, things: Mapping[str, Kind]) -> None:
        self.home, self.things = home, dict(things)
        self.model = build(home, self.things).compile()
        self.data = mujoco.MjData(self.model)
        self._mocap = {name: int(self.model.body(name).mocapid[0]) for name in (*self.things, *_moving(home), "base")}
        self.body = {name: int(self.model.body(name).id) for name in (*self.things, "base")}
        self._rest = {name: self.data.mocap_pos[self._mocap[name]].copy() for name in _moving(home)}
        self._placed: Mapping[str, Placement | None] = {}
        self._renderer: SceneRenderer | None = None
        self.opened: str | None = None
        self.base = home.dock
        self.arrange({})

    def arrange(self, placements: Mapping[str, Placement | None]) -> None:
        """Put every thing where ``placements`` says; what is None or not named is out of the home."""
        self._placed = dict(placements)
        self._settle()

    def open(self, spot: str | None) -> None:
        """Open the drawer or cupboard ``spot`` and close every other one; None closes all."""
        self.opened = spot
        self._settle()

    def drive(self, base: np.ndarray) -> None:
        """Put the base at x, y (m), yaw (rad) of the map."""
        self.base = np.asarray(base, np.float64)
        self.data.mocap_pos[self._mocap["base"]] = [*self.base[:2], 0.0]
        self.data.mocap_quat[self._mocap["base"]] = _about_z(float(self.base[2]))
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)

    def render(self, stamp_ns: int) -> CameraFrame:
        """Return what the camera sees, its pose in base_link."""
        if self._renderer is None:
            self._renderer = SceneRenderer(WIDTH, HEIGHT)
            self._renderer.use(self.model)
        seen = self._renderer.frame("eye", self.data, stamp_ns, depth=True)
        return CameraFrame("eye", stamp_ns, seen.color, seen.intrinsics, EYE, seen.depth)

    def cast(self, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return distance (n,) m (inf: nothing) and body (n,) hit by rays from the eye along ``directions`` (n, 3)."""
        rays = np.ascontiguousarray(directions, np.float64)
        geom, distance = np.full(len(rays), -1, np.int32), np.empty(len(rays))
        eye = self.oracle_eye().position[:, None]
        mujoco.mj_multiRay(
            self.model, self.data, eye, rays.reshape(-1, 1), None, 1, self.body["base"], geom[:, None],
            distance[:, None], None, len(rays), 20.0,
        )  # fmt: skip
        hit = geom >= 0
        return np.where(hit, distance, np.inf), np.where(hit, self.model.geom_bodyid[geom], -1)

    def oracle_eye(self) -> Pose:
        """Return the camera's true optical frame in the map."""
        turn = Rotation.from_euler("z", float(self.base[2]))
        base = make_pose(np.array([*self.base[:2], 0.0]), turn, "map")
        eye = Rotation.from_quat(EYE.quaternion, scalar_first=True)
        return make_pose(to_frame(EYE.position, base), turn * eye, "map")

    def oracle_placements(self, spot: str) -> dict[str, Placement]:
        """Return the true placement of each thing that is on or in ``spot``."""
        return {thing: at for thing, at in self._placed.items() if at is not None and at.spot == spot}

    def oracle_positions(self, spot: str) -> dict[str, np.ndarray]:
        """Return thing -> its true place (3,) m in the map, of all that is on or in ``spot``."""
        return {thing: at.position for thing, at in self.oracle_placements(spot).items()}

    def close(self) -> None:
        """Free the rendering context; may be called twice."""
        if self._renderer is not None:
            self._renderer.close()
        self._renderer = None

    def _settle(self) -> None:
        for name, index in self._mocap.items():
            if name in self._rest:
                spot = self.home.spots[name]
                self.data.mocap_pos[index] = self._rest[name] + (_slide(spot) if name == self.opened else 0.0)
        for name in self.things:
            index, at = self._mocap[name], self._placed.get(name)
            if at is None:
                self.data.mocap_pos[index] = _AWAY
                continue
            spot = self.home.spots[at.spot]
            inside = spot.kind == "drawer" and at.spot != self.opened
            self.data.mocap_pos[index] = at.position - (_slide(spot) if inside else 0.0)
            self.data.mocap_quat[index] = _about_z(at.yaw)
        self.drive(self.base)


def half_view() -> np.ndarray:
    """Return how far (2,) the camera sees to the right and down, in m per m of depth."""
    k = camera_intrinsics()
    return np.array([0.5 * WIDTH / k[0, 0], 0.5 * HEIGHT / k[1, 1]])


def camera_intrinsics() -> np.ndarray:
    """Return the camera's K (3, 3) in pixels."""
    return intrinsics(FOVY_DEG, WIDTH, HEIGHT)


def build(home: Home, things: Mapping[str, Kind]) -> mujoco.MjSpec:
    """Return the model of ``home``; drawers, doors and things are mocap bodies that others put in place."""
    spec = mujoco.MjSpec()
    spec.modelname = f"engram_household_{home.seed}"
    spec.visual.quality.shadowsize = spec.visual.quality.offsamples = 0
    spec.visual.headlight.ambient, spec.visual.headlight.diffuse = [0.45] * 3, [0.35] * 3
    spec.visual.headlight.specular = [0.0] * 3
    spec.visual.map.znear, spec.visual.map.zfar = 0.05, 30.0
    spec.stat.extent = 1.0
    lamp = spec.worldbody.add_light(pos=[0, 0, 3], dir=[0.2, -0.3, -1.0], diffuse=[0.35] * 3, specular=[0.0] * 3)
    lamp.type = mujoco.mjtLightType.mjLIGHT_DIRECTIONAL
    _add_rooms(spec, home)
    for spot in home.spots.values():
        {"drawer": _add_drawer, "cupboard": _add_cupboard}.get(spot.kind, _add_surface)(spec, spot)
    for name, kind in things.items():
        body = spec.worldbody.add_body(name=name, mocap=True, pos=_AWAY)
        half = 0.5 * kind.size
        round_ = kind.shape in ("cup", "button")
        size = [half[0], half[2], 0.0] if round_ else half
        _add(body, _CYLINDER if round_ else _BOX, size, np.zeros(3), (*kind.rgb, 1.0))
    base = spec.worldbody.add_body(name="base", mocap=True)
    _add(base, _CYLINDER, [0.22, 0.12, 0], np.array([0.0, 0.0, 0.13]), (0.2, 0.2, 0.22, 1))
    _add(base, _CYLINDER, [0.02, 0.6, 0], np.array([0.0, 0.0, 0.8]), (0.2, 0.2, 0.22, 1))
    eye = base.add_camera(name="eye", pos=EYE.position, fovy=FOVY_DEG)
    eye.quat = (Rotation.from_quat(EYE.quaternion, scalar_first=True) * Rotation.from_euler("x", np.pi)).as_quat(
        scalar_first=True
    )
    return spec


def _add_rooms(spec: mujoco.MjSpec, home: Home) -> None:
    world = spec.worldbody
    _add(world, mujoco.mjtGeom.mjGEOM_PLANE, [30, 30, 0.1], np.zeros(3), _FLOOR)
    done: set[tuple[float, float]] = set()
    for name, middle in home.rooms.items():
        for yaw in (0.0, 0.5 * np.pi, np.pi, 1.5 * np.pi):
            ahead, left = np.array([np.cos(yaw), np.sin(yaw)]), np.array([-np.sin(yaw), np.cos(yaw)])
            centre = middle + 0.5 * ROOM_M * ahead
            key = (round(float(centre[0]), 3), round(float(centre[1]), 3))
            if key in done:
                continue
            done.add(key)
            neighbour = home.room_of(middle + ROOM_M * ahead)
            door = tuple(sorted((name, neighbour))) in home.doors and not np.allclose(home.rooms[neighbour], middle)
            for low, high in ((-0.5 * ROOM_M, -0.5 * DOOR_M), (0.5 * DOOR_M, 0.5 * ROOM_M)) if door else (
                (-0.5 * ROOM_M, 0.5 * ROOM_M),
            ):  # fmt: skip
                at = centre + 0.5 * (low + high) * left
                half = np.abs(0.5 * WALL_M * ahead) + np.abs(0.5 * (high - low) * left)
                _add(world, _BOX, [*half, 0.5 * WALL_HEIGHT_M], np.array([*at, 0.5 * WALL_HEIGHT_M]), _WALL)


def _add_surface(spec: mujoco.MjSpec, spot: Spot) -> None:
    board = 0.03
    _slab(spec.worldbody, spot, (spot.depth, spot.width, board), (0, 0, -0.5 * board))
    height = float(spot.centre[2]) - board
    for x in (-1, 1):
        for y in (-1, 1):
            leg = (x * (0.5 * spot.depth - 0.04), y * (0.5 * spot.width - 0.04), -board - 0.5 * height)
            _slab(spec.worldbody, spot, (0.05, 0.05, height), leg)


def _add_drawer(spec: mujoco.MjSpec, spot: Spot) -> None:
    """A chest with its drawer as a body of its own, at rest closed: one depth behind where it opens to."""
    behind, top, wall, rim = spot.depth, 0.28, 0.02, 0.08
    below = float(spot.centre[2]) - 0.04
    world = spec.worldbody
    _slab(world, spot, (spot.depth, spot.width, below), (behind, 0, -0.04 - 0.5 * below))
    _slab(world, spot, (spot.depth, spot.width, wall), (behind, 0, top))
    for sign in (-1, 1):
        _slab(world, spot, (spot.depth, wall, top), (behind, sign * (0.5 * spot.width + wall), 0.5 * top - 0.02))
    body = world.add_body(name=spot.name, mocap=True, pos=spot.centre - _slide(spot), quat=_about_z(spot.yaw))
    _add(body, _BOX, [0.5 * spot.depth, 0.5 * spot.width, 0.01], np.array([0, 0, -0.01]), _INSIDE)
    for x, y, half in ((-1, 0, 0.5 * spot.width), (0, -1, 0.5 * spot.depth), (0, 1, 0.5 * spot.depth)):
        at = np.array([x * (0.5 * spot.depth + 0.008), y * (0.5 * spot.width - 0.008), 0.5 * rim - 0.02])
        size = [0.008, half, 0.5 * rim] if x else [half, 0.008, 0.5 * rim]
        _add(body, _BOX, size, at, _FURNITURE)


def _add_cupboard(spec: mujoco.MjSpec, spot: Spot) -> None:
    """A cupboard at standing height whose door swings out of the way."""
    top, wall = 0.46, 0.02
    world, below = spec.worldbody, float(spot.centre[2])
    _slab(world, spot, (spot.depth, spot.width, below), (0, 0, -0.5 * below))
    _slab(world, spot, (spot.depth, spot.width, wall), (0, 0, top))
    _slab(world, spot, (wall, spot.width, top), (0.5 * spot.depth, 0, 0.5 * top))
    for sign in (-1, 1):
        _slab(world, spot, (spot.depth, wall, top), (0, sign * 0.5 * (spot.width + wall), 0.5 * top))
    door = world.add_body(name=spot.name, mocap=True, pos=spot.to_map(_DOOR), quat=_about_z(spot.yaw))
    _add(door, _BOX, [0.01, 0.5 * spot.width, 0.5 * top], np.array([-0.5 * spot.depth - 0.02, 0, 0.0]), _FURNITURE)


_DOOR = np.array([0.0, 0.0, 0.23])


def _slide(spot: Spot) -> np.ndarray:
    """Return how far (3,) m the moving part of ``spot`` goes when it opens; a cupboard's door goes up and away."""
    if spot.kind == "drawer":
        return -spot.depth * np.array([np.cos(spot.yaw), np.sin(spot.yaw), 0.0])
    return np.array([0.0, 0.0, 3.0])


def _moving(home: Home) -> list[str]:
    return [spot.name for spot in home.spots.values() if spot.closed]


def _slab(body: mujoco.MjsBody, spot: Spot, size: tuple[float, ...], local: tuple[float, ...]) -> None:
    half = 0.5 * np.array(size)
    _add(body, _BOX, half, spot.to_map(np.array(local)), _FURNITURE, _about_z(spot.yaw))


def _add(
    body: mujoco.MjsBody, kind: int, size: object, at: np.ndarray, rgba: tuple, quat: object = (1, 0, 0, 0)
) -> None:
    body.add_geom(type=kind, size=size, pos=at, rgba=rgba, quat=quat, contype=0, conaffinity=0)


def _about_z(yaw: float) -> np.ndarray:
    return np.array([np.cos(0.5 * yaw), 0.0, 0.0, np.sin(0.5 * yaw)])
