"""The robot for the page: the hulls of its links once, their poses for every joint state. No ROS in here.

Shapes are the maker's collision hulls, a few thousand triangles in all; the motion is that of our own model.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
import trimesh

from engram.core.robot import PANDA_2F85, RobotConfig
from engram.core.types import JointState
from engram.sim.robots.panda import assets_dir, panda_spec

HULL_GROUP = 3
HAND_COLOR, ARM_COLOR = (60, 60, 64), (236, 237, 240)


@dataclass(frozen=True)
class Shape:
    """One hull of a link, in the link's own frame."""

    name: str
    vertices: np.ndarray  # (v, 3) m
    faces: np.ndarray  # (f, 3) indices
    color: tuple[int, int, int]


class RobotShapes:
    """Forward kinematics of every link of the Panda and its gripper."""

    def __init__(self, robot: RobotConfig = PANDA_2F85) -> None:
        self.robot = robot
        self._hulls = mujoco.MjModel.from_xml_path(str(assets_dir() / "panda.xml"))
        self._geoms = [g for g in range(self._hulls.ngeom) if self._hulls.geom_group[g] == HULL_GROUP]
        self._model = panda_spec("none", robot).compile()
        self._data = mujoco.MjData(self._model)
        names = [self._hulls.body(self._hulls.geom_bodyid[g]).name for g in self._geoms]
        self._names, self._bodies = names, [self._model.body(name).id for name in names]
        self._addresses = [self._model.joint(name).qposadr[0] for name in robot.joint_names]

    def shapes(self) -> list[Shape]:
        """Return every hull."""
        return [self._shape(name, geom) for name, geom in zip(self._names, self._geoms, strict=True)]

    def _shape(self, body: str, geom: int) -> Shape:
        model = self._hulls
        if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_MESH:
            mesh = _hull(model, int(model.geom_dataid[geom]))
        else:
            mesh = _mesh(int(model.geom_type[geom]), model.geom_size[geom])
        place = np.eye(4)
        mujoco.mju_quat2Mat(turn := np.empty(9), model.geom_quat[geom])
        place[:3, :3], place[:3, 3] = turn.reshape(3, 3), model.geom_pos[geom]
        mesh.apply_transform(place)
        color = ARM_COLOR if body.startswith("link") else HAND_COLOR
        return Shape(f"{body}_{geom}", np.asarray(mesh.vertices), np.asarray(mesh.faces), color)

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
    first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
    return trimesh.Trimesh(model.mesh_vert[first : first + count]).convex_hull


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
