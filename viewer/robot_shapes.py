"""The robot for the page: the shapes of its links once, their poses for every joint state. No ROS in here.

Shapes are the convex hulls of what the simulated model shows of each link.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
import trimesh

from engram.core.robot import PANDA_2F85, RobotConfig
from engram.core.types import JointState
from engram.sim.robots.model import outermost, robot_spec

SHOWN_GROUPS = 3
"""MuJoCo shows geoms of the groups 0, 1 and 2; others are for collisions."""


@dataclass(frozen=True)
class Shape:
    """One convex part of a link, in the link's own frame."""

    name: str
    vertices: np.ndarray  # (v, 3) m
    faces: np.ndarray  # (f, 3) indices
    color: tuple[int, int, int]


class RobotShapes:
    """Forward kinematics of every link of the robot and its gripper, for drawing."""

    def __init__(self, robot: RobotConfig = PANDA_2F85) -> None:
        self.robot = robot
        self._model = robot_spec(robot, "photo").compile()
        self._data = mujoco.MjData(self._model)
        self._geoms = [g for g in range(self._model.ngeom) if self._model.geom_group[g] < SHOWN_GROUPS]
        self._bodies = [int(self._model.geom_bodyid[g]) for g in self._geoms]
        self._addresses = [self._model.joint(name).qposadr[0] for name in robot.joint_names]

    def shapes(self) -> list[Shape]:
        """Return every part of every link."""
        return [self._shape(geom) for geom in self._geoms]

    def _shape(self, geom: int) -> Shape:
        model = self._model
        if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_MESH:
            mesh = _hull(model, int(model.geom_dataid[geom]))
        else:
            mesh = _mesh(int(model.geom_type[geom]), model.geom_size[geom])
        place = np.eye(4)
        mujoco.mju_quat2Mat(turn := np.empty(9), model.geom_quat[geom])
        place[:3, :3], place[:3, 3] = turn.reshape(3, 3), model.geom_pos[geom]
        mesh.apply_transform(place)
        material = int(model.geom_matid[geom])
        red, green, blue = (255 * (model.mat_rgba[material] if material >= 0 else model.geom_rgba[geom])[:3]).tolist()
        name = f"{model.body(model.geom_bodyid[geom]).name}_{geom}"
        return Shape(name, np.asarray(mesh.vertices), np.asarray(mesh.faces), (int(red), int(green), int(blue)))

    def poses(self, joints: JointState) -> tuple[np.ndarray, np.ndarray]:
        """Return positions (n, 3) m and quaternions wxyz (n, 4) in base_link, in the order of :meth:`shapes`."""
        by_name = dict(zip(joints.names, joints.positions, strict=True))
        for name, address in zip(self.robot.joint_names, self._addresses, strict=True):
            self._data.qpos[address] = by_name.get(name, self._data.qpos[address])
        self._couple()
        mujoco.mj_kinematics(self._model, self._data)
        return self._data.xpos[self._bodies].copy(), self._data.xquat[self._bodies].copy()

    def _couple(self) -> None:
        """Let the gripper's linkage follow its driver, as the model's joint equalities say."""
        model, qpos = self._model, self._data.qpos
        for equality in range(model.neq):
            if model.eq_type[equality] == mujoco.mjtEq.mjEQ_JOINT:
                follower, driver = model.eq_obj1id[equality], model.eq_obj2id[equality]
                offset, ratio = model.eq_data[equality][:2]
                qpos[model.jnt_qposadr[follower]] = offset + ratio * qpos[model.jnt_qposadr[driver]]


def _hull(model: mujoco.MjModel, mesh: int) -> trimesh.Trimesh:
    """Return the convex hull of a mesh's outermost vertices."""
    first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
    return trimesh.Trimesh(outermost(model.mesh_vert[first : first + count])).convex_hull


def _mesh(kind: int, size: np.ndarray) -> trimesh.Trimesh:
    """Return a mesh of a MuJoCo primitive: half extents for boxes, radius and half length for the round ones."""
    if kind == mujoco.mjtGeom.mjGEOM_BOX:
        return trimesh.creation.box(extents=2 * size)
    if kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        mesh = trimesh.creation.capsule(height=2 * size[1], radius=size[0], count=(12, 16))
        mesh.apply_translation(-mesh.bounds.mean(axis=0))
        return mesh
    if kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        return trimesh.creation.cylinder(radius=size[0], height=2 * size[1], sections=24)
    return trimesh.creation.icosphere(subdivisions=2, radius=size[0])
