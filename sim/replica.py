"""A robot at an empty table that is put where a record of another robot has it, and does what that did."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np

from engram.core.geometry import rotation
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.core.types import CameraFrame
from engram.sim.gap_world import GapWorld, MiscalibratedController
from engram.sim.gaps import Gap
from engram.sim.scene import SceneConfig
from engram.sim.world import WorldConfig

_CLOSING = 4
"""Times that the fingers' linkage is simulated for ``_CLOSING_STEPS``, with the arm put back each time."""
_CLOSING_STEPS = 20
ABOVE_M, FAR_M = 0.01, 3.0
"""What is higher above the table than the one, and no farther from the camera than the other, is the robot."""
ARM = slice(8, None)
"""Of the policy's state: the positions of the arm's joints; the gripper's fraction is at 7."""


class Replica(GapWorld):
    """The robot of a record, with the gap that it might have; nothing lies on its table.

    Args:
        robot: of the record.
        image_size: of its pictures [px]; 0: there are none.
    """

    def __init__(self, robot: RobotConfig | str = PANDA_2F85, image_size: int = 0) -> None:
        profile = WorldConfig(profile="none") if not image_size else WorldConfig(image_size=image_size)
        super().__init__(Gap(), profile, robot)
        self.controller = MiscalibratedController(self.kinematics, self.robot)
        self.load(SceneConfig())

    def become(self, gap: Gap) -> None:
        """Have the gap ``gap`` from now on."""
        self.gap = self.controller.gap = gap
        self.deviate()

    def place(self, state: np.ndarray) -> np.ndarray:
        """Put the robot, at rest, where the policy's ``state`` (8 + n,) has it; return all joints (q,), for
        :meth:`put`."""
        joints = np.append(state[ARM], self.robot.gripper_position(float(state[7]))).astype(float)
        mujoco.mj_resetData(self.model, self.data)
        for _ in range(_CLOSING):
            self.data.qpos[self._qpos], self.data.ctrl[self._ctrl], self.data.qvel[:] = joints, joints, 0.0
            mujoco.mj_step(self.model, self.data, _CLOSING_STEPS)
        self.data.qpos[self._qpos], self.data.qvel[:], self._targets = joints, 0.0, joints
        mujoco.mj_forward(self.model, self.data)
        return self.data.qpos.copy()

    def put(self, joints: np.ndarray) -> dict[str, np.ndarray]:
        """Put all ``joints`` (q,) where they are told; return the pictures (H, W, 3) uint8 of every camera."""
        self.data.qpos[:] = joints
        return {name: seen.color for name, seen in self.observe(depth=False).cameras.items()}

    def shape(self, joints: np.ndarray) -> dict[str, np.ndarray]:
        """Put all ``joints`` (q,) where they are told; return where in the pictures the robot is, (H, W) bool each."""
        self.data.qpos[:] = joints
        return {name: _above_table(seen) for name, seen in self.observe(depth=True).cameras.items()}

    def replay(self, state: np.ndarray, actions: Sequence[np.ndarray]) -> np.ndarray:
        """Do ``actions``, n of (7,), from ``state`` on; return where the tool was before each, (n, 3) m."""
        self._late.clear()
        self.place(state)
        self.controller.reset()
        went = []
        for action in actions:
            joints = self.joint_state()
            went.append(self.kinematics.forward(joints.positions[:-1]).position)
            self.advance(self.controller.command(action, joints))
        return np.array(went)


def _above_table(seen: CameraFrame) -> np.ndarray:
    """Return where ``seen``, with its depth, shows something that stands on the table (H, W) bool."""
    assert seen.depth is not None
    v, u = np.indices(seen.depth.shape)
    up = rotation(seen.pose).as_matrix()[2] @ np.linalg.inv(seen.intrinsics)  # (3,) of a pixel (u, v, 1)
    height = seen.pose.position[2] + seen.depth * (up[0] * u + up[1] * v + up[2])
    return np.asarray((height > ABOVE_M) & (seen.depth < FAR_M))
