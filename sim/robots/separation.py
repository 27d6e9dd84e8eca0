"""Distances between the shapes of a robot, its table and obstacles, and how they change with the joints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from engram.core.errors import InvalidInputError
from engram.core.robot import RobotConfig
from engram.sim.robots.collision_model import coupled

_NUDGES = 1e-5 * np.vstack((np.eye(3), -np.eye(3)))
"""(6, 3) m. MuJoCo 3.8 says exactly 0 for some meshes that are well apart (its issue 3383): moved by as little, it says
how far."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where everything is for some joint positions, in base_link."""

    positions: np.ndarray  # (n,) of the robot's joints
    geom_position: np.ndarray  # (ngeom, 3) m
    geom_axes: np.ndarray  # (ngeom, 3, 3) axes of the geoms as columns
    anchor: np.ndarray  # (nq, 3) m, a point on each joint's axis
    axis: np.ndarray  # (nq, 3) the joints' axes


@dataclass(frozen=True, slots=True)
class Distances:
    """Distances of some pairs of geoms, and where the two come nearest."""

    value: np.ndarray  # (k,) m, below zero where they overlap
    ends: np.ndarray  # (k, 6) m, the nearest points of first and second; zero where they were not measured
    plane: np.ndarray  # (k,) whether the first is the table

    def part(self, chosen: np.ndarray) -> Distances:
        """Return those that are ``chosen``, a mask (k,)."""
        return Distances(self.value[chosen], self.ends[chosen], self.plane[chosen])

    def normals(self) -> np.ndarray:
        """Return the unit vectors from first to second (k, 3); zero where they are not known."""
        way = self.ends[:, 3:] - self.ends[:, :3]
        length = np.sqrt(np.einsum("ij,ij->i", way, way))
        normals = way * np.where(length > 1e-9, np.sign(self.value) / np.maximum(length, 1e-9), 0.0)[:, None]
        normals[self.plane] = 0.0, 0.0, 1.0
        return normals


class Separation:
    """Distances of chosen pairs of geoms for joint positions, exact where they matter."""

    def __init__(self, model: mujoco.MjModel, robot: RobotConfig, pairs: Sequence[tuple[int, int]]) -> None:
        """Measure ``pairs`` of geoms of ``model``; the first of each may be a plane or box of the world."""
        self.model, self._data = model, mujoco.MjData(model)
        self.first, self.second = np.array(pairs, int).reshape(-1, 2).T
        self.is_plane = model.geom_type[self.first] == mujoco.mjtGeom.mjGEOM_PLANE
        self._offset, self._matrix = coupled(model, robot)
        self._spread = np.abs(self._matrix)
        self.turns = self._spread.sum(axis=0)
        """(n,) how much all joints of the model move together for each unit of a joint of the robot."""
        self._slides = model.jnt_type == mujoco.mjtJoint.mjJNT_SLIDE
        moved = _moved(model)
        if (moved[self.first] & ~moved[self.second]).any():
            raise InvalidInputError("a pair of geoms on two branches: expected the first nearer to the base")
        self._alone = (moved[self.second] & ~moved[self.first]) * 1.0  # (p, nq) 1: changes the distance
        self._alone[np.ix_(self.is_plane, _level(model))] = 0.0
        longest = np.array([_longest_levers(model, geom) for geom in range(model.ngeom)])  # (ngeom, nq) m
        self.levers = (longest[self.second] * self._alone) @ self._spread
        """(p, n) how far a pair can come nearer for each unit that a joint of the robot moves, at most [m]."""
        self._corners = [_corners(model, geom) for geom in range(model.ngeom)]
        self.refresh(())

    def refresh(self, geoms: Sequence[int]) -> None:
        """Take note that these ``geoms`` of the world were moved or changed their size."""
        bound = self.model.geom_rbound
        self._bound = bound[self.first] + bound[self.second]  # (p,) m
        for geom in geoms:
            self._corners[geom] = _corners(self.model, geom)

    def place(self, positions: np.ndarray) -> Placement:
        """Return where everything is at joint ``positions`` (n,)."""
        data = self._data
        data.qpos[:] = self._offset + self._matrix @ positions
        mujoco.mj_kinematics(self.model, data)
        axes = data.geom_xmat.reshape(-1, 3, 3).copy()
        return Placement(positions, data.geom_xpos.copy(), axes, data.xanchor.copy(), data.xaxis.copy())

    def distances(self, at: Placement, chosen: np.ndarray, reach: np.ndarray) -> Distances:
        """Return the distance of each of the ``chosen`` pairs (k,).

        What is above ``reach`` (k,) may be told too small, but never below ``reach``.
        """
        self._data.geom_xpos[:], self._data.geom_xmat[:] = at.geom_position, at.geom_axes.reshape(-1, 9)
        first, second = self.first[chosen], self.second[chosen]
        between = at.geom_position[second] - at.geom_position[first]
        plane = self.is_plane[chosen]
        apart = np.where(plane, between[:, 2], np.sqrt(np.einsum("ij,ij->i", between, between)))
        apart -= np.where(plane, self._half_height(at, second, plane), self._bound[chosen])
        ends = np.zeros((len(chosen), 6))
        for i in np.flatnonzero(apart <= reach).tolist():
            apart[i] = self._distance(int(first[i]), int(second[i]), float(reach[i]) + 1e-3, ends[i])
        return Distances(apart, ends, plane)

    def _half_height(self, at: Placement, geoms: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Return how far each of ``geoms`` (k,) reaches below its origin at most [m]; zero unless ``chosen`` (k,)."""
        reach, boxes = np.zeros(len(geoms)), self.model.geom_aabb[geoms[chosen]]
        up = at.geom_axes[geoms[chosen], 2]  # (c, 3) the vertical in the geoms' frames
        reach[chosen] = np.einsum("ij,ij->i", np.abs(up), boxes[:, 3:]) - np.einsum("ij,ij->i", up, boxes[:, :3])
        return reach

    def slopes(self, at: Placement, chosen: np.ndarray, found: Distances) -> np.ndarray:
        """Return how the distances that were ``found`` change with the joints, (k, n) m/unit."""
        lever = found.ends[:, None, 3:] - at.anchor  # (k, nq, 3)
        moves = np.where(self._slides[:, None], at.axis, np.cross(at.axis, lever))
        return np.asarray((np.einsum("kj,kqj->kq", found.normals(), moves) * self._alone[chosen]) @ self._matrix)

    def gap(self, at: Placement, pair: int, normal: np.ndarray, there: Placement) -> float:
        """Return how far apart the shapes of ``pair`` are along one direction [m]; their distance is never smaller.

        The direction is the unit vector ``normal`` (3,) ``there``, and turns with the first of the two from there.
        """
        first, second = int(self.first[pair]), int(self.second[pair])
        own = normal @ there.geom_axes[first]  # in the frame of the first
        turned = at.geom_axes[first] @ own
        far = (self._corners[second] @ (turned @ at.geom_axes[second])).min()
        near = (self._corners[first] @ own).max()
        return float(far - near + turned @ (at.geom_position[second] - at.geom_position[first]))

    def _distance(self, first: int, second: int, most: float, ends: np.ndarray) -> float:
        """Return the distance of two geoms, at most ``most`` [m]; ``ends`` (6,) become the nearest points."""
        found = mujoco.mj_geomDistance(self.model, self._data, first, second, most, ends)
        if found != 0.0:
            return float(found)
        here = self._data.geom_xpos[first].copy()
        for nudge in _NUDGES:
            self._data.geom_xpos[first] = here + nudge
            found = mujoco.mj_geomDistance(self.model, self._data, first, second, most, ends)
            if found != 0.0:
                found -= 1e-5
                break
        self._data.geom_xpos[first] = here
        return float(found)


def _corners(model: mujoco.MjModel, geom: int) -> np.ndarray:
    """Return the corners (v, 3) m of a mesh or box in its own frame; a plane has its origin alone."""
    if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        first = model.mesh_vertadr[mesh]
        return np.array(model.mesh_vert[first : first + model.mesh_vertnum[mesh]], np.float64)
    half = 0.0 if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_PLANE else model.geom_size[geom]
    return np.array(np.meshgrid(*[(-1.0, 1.0)] * 3)).reshape(3, -1).T * half


def _moved(model: mujoco.MjModel) -> np.ndarray:
    """Return which joints move which geom, (ngeom, nq)."""
    moved = np.zeros((model.ngeom, model.nq), bool)
    for geom in range(model.ngeom):
        body = model.geom_bodyid[geom]
        while body > 0:
            first = model.body_jntadr[body]
            if first >= 0:
                moved[geom, model.jnt_qposadr[first : first + model.body_jntnum[body]]] = True
            body = model.body_parentid[body]
    return moved


def _level(model: mujoco.MjModel) -> np.ndarray:
    """Return the joints (nq,) that change no height whatever the others do: the first ones, about or across z."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    level = np.zeros(model.nq, bool)
    tilts = np.zeros(model.nbody, bool)  # whether a joint up to this body tilts what follows
    for body in range(1, model.nbody):
        tilts[body] = tilts[model.body_parentid[body]]
        for joint in range(model.body_jntadr[body], model.body_jntadr[body] + model.body_jntnum[body]):
            slides = model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_SLIDE
            upright = abs(data.xaxis[joint, 2])
            level[joint] = not tilts[body] and (upright < 1e-9 if slides else upright > 1.0 - 1e-9)
            tilts[body] |= not slides and not level[joint]
    return level


def _longest_levers(model: mujoco.MjModel, geom: int) -> np.ndarray:
    """Return the longest lever that each joint can ever have on ``geom``, (nq,) m: 1 for sliding joints, 0 for none.

    It is the way from the joint to the geom along the links, and then the geom's radius.
    """
    levers = np.zeros(model.nq)
    way = float(model.geom_rbound[geom] + np.linalg.norm(model.geom_pos[geom]))
    body = model.geom_bodyid[geom]
    while body > 0:
        for joint in range(model.body_jntadr[body], model.body_jntadr[body] + model.body_jntnum[body]):
            slides = model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_SLIDE
            anchor = float(np.linalg.norm(model.jnt_pos[joint]))
            levers[model.jnt_qposadr[joint]] = 1.0 if slides else way + anchor
            way += float(np.abs(model.jnt_range[joint]).max()) if slides else 2.0 * anchor
        way += float(np.linalg.norm(model.body_pos[body]))
        body = model.body_parentid[body]
    return levers
