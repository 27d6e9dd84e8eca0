"""The Panda and its gripper as their makers' collision meshes have them: what the barrier is judged by.

The barrier keeps convex hulls of the shown meshes apart. These meshes are others, in MuJoCo's own collision detection.
"""

from __future__ import annotations

import mujoco
import numpy as np

from engram.core.robot import PANDA_2F85
from engram.sim.robots.panda import assets_dir

FIXED = ("link0", "link1")
"""Links whose height does not change."""
_GRIPPER = {"driver": 1.0, "spring_link": 1.0, "follower": -1.0}  # joint -> ratio to the gripper's position
ROUNDING_M = 1e-4
"""Overlaps below this do not count [m]."""


class MakersMeshes:
    """Tells for joint positions what overlaps, and how low the arm gets."""

    def __init__(self) -> None:
        self._model = mujoco.MjModel.from_xml_path(str(assets_dir() / "panda.xml"))
        self._data = mujoco.MjData(self._model)
        model = self._model
        self._link = [model.body(model.geom_bodyid[geom]).name for geom in range(model.ngeom)]
        self._moving = [g for g in range(model.ngeom) if model.geom_group[g] == 3 and self._link[g] not in FIXED]
        self._corners = {geom: self._corners_of(geom) for geom in self._moving}

    def place(self, positions: np.ndarray) -> None:
        """Move the links to ``positions`` (8,) of arm [rad] and gripper."""
        for name, position in zip(PANDA_2F85.arm_joints, positions, strict=False):
            self._set(name, float(position))
        for name, ratio in _GRIPPER.items():
            for side in ("right", "left"):
                self._set(f"{side}_{name}_joint", ratio * float(positions[-1]))
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)
        mujoco.mj_collision(self._model, self._data)

    def overlaps(self) -> bool:
        """Tell whether a link of the arm overlaps with another that is not its neighbour, or with the hand."""
        return any(
            contact.dist < -ROUNDING_M
            and any(self._link[geom].startswith("link") for geom in (contact.geom1, contact.geom2))
            for contact in self._data.contact
        )

    def lowest(self) -> float:
        """Return the height of the lowest point of the links that can get to the table [m]."""
        data = self._data
        return min(
            float((corners @ data.geom_xmat[geom].reshape(3, 3)[2]).min() + data.geom_xpos[geom, 2])
            for geom, corners in self._corners.items()
        )

    def _set(self, joint: str, position: float) -> None:
        self._data.qpos[self._model.joint(joint).qposadr[0]] = position

    def _corners_of(self, geom: int) -> np.ndarray:
        mesh = self._model.geom_dataid[geom]
        if mesh < 0:  # a pad: a box
            return np.array(np.meshgrid(*[(-1, 1)] * 3)).reshape(3, -1).T * self._model.geom_size[geom]
        first = self._model.mesh_vertadr[mesh]
        return np.array(self._model.mesh_vert[first : first + self._model.mesh_vertnum[mesh]], np.float64)
