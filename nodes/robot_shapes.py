"""The robot as primitives for the page: shapes once, poses for every joint state. No ROS in here."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
import trimesh

from engram.core.robot import PANDA_2F85, RobotConfig
from engram.core.types import JointState
from engram.sim.panda import panda_spec

VISIBLE_GROUP = 2


@dataclass(frozen=True)
class Shape:
    """One primitive of a link, around its own origin."""

    name: str
    vertices: np.ndarray  # (v, 3) m
    faces: np.ndarray  # (f, 3) indices
    color: tuple[int, int, int]


class RobotShapes:
    """Forward kinematics of every visible primitive of the Panda and its gripper."""

    def __init__(self, robot: RobotConfig = PANDA_2F85) -> None:
        self.robot = robot
        self._model = panda_spec("fast", robot).compile()
        self._data = mujoco.MjData(self._model)
        self._geoms = [g for g in range(self._model.ngeom) if self._model.geom_group[g] == VISIBLE_GROUP]
        self._addresses = [self._model.joint(name).qposadr[0] for name in robot.joint_names]

    def shapes(self) -> list[Shape]:
        """Return every visible primitive."""
        return [self._shape(g) for g in self._geoms]

    def _shape(self, geom: int) -> Shape:
        body = self._model.body(self._model.geom_bodyid[geom]).name
        rgb = tuple(int(255 * c) for c in self._model.geom_rgba[geom][:3])
        mesh = _mesh(int(self._model.geom_type[geom]), self._model.geom_size[geom])
        return Shape(f"{body}_{geom}", np.asarray(mesh.vertices), np.asarray(mesh.faces), rgb)  # type: ignore[arg-type]

    def poses(self, joints: JointState) -> tuple[np.ndarray, np.ndarray]:
        """Return positions (n, 3) m and quaternions wxyz (n, 4) in base_link, in the order of :meth:`shapes`."""
        by_name = dict(zip(joints.names, joints.positions, strict=True))
        for name, address in zip(self.robot.joint_names, self._addresses, strict=True):
            self._data.qpos[address] = by_name.get(name, self._data.qpos[address])
        self._couple()
        mujoco.mj_kinematics(self._model, self._data)
        quaternions = np.empty((len(self._geoms), 4))
        for row, geom in enumerate(self._geoms):
            mujoco.mju_mat2Quat(quaternions[row], self._data.geom_xmat[geom])
        return self._data.geom_xpos[self._geoms].copy(), quaternions

    def _couple(self) -> None:
        """Let the gripper's linkage follow its driver, as the model's joint equalities say."""
        model, qpos = self._model, self._data.qpos
        for equality in range(model.neq):
            if model.eq_type[equality] == mujoco.mjtEq.mjEQ_JOINT:
                follower, driver = model.eq_obj1id[equality], model.eq_obj2id[equality]
                offset, ratio = model.eq_data[equality][:2]
                qpos[model.jnt_qposadr[follower]] = offset + ratio * qpos[model.jnt_qposadr[driver]]


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
