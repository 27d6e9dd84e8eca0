"""Forward and inverse kinematics of the Panda's tool point, on a model of the arm alone."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import mink
import mujoco
import numpy as np

from engram.core.arrays import checked
from engram.core.contracts import Kinematics
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.core.types import Pose
from engram.sim.panda import TOOL_SITE, kinematic_spec


@dataclass(frozen=True)
class KinematicsConfig:
    """How the inverse is searched."""

    iterations: int = 3
    """Quadratic programs solved per call, always this many: the result depends on the arguments alone."""
    orientation_cost: float = 0.3
    """Weight of a radian against a metre of position."""
    posture_cost: float = 1e-4
    """Pull of the elbow towards home, in the directions that the tool does not feel."""
    damping: float = 1e-6
    """Levenberg-Marquardt damping: keeps the steps bounded near singular postures."""


class PandaKinematics(Kinematics):
    """Tool pose from joints by MuJoCo, joints from tool pose by mink's differential inverse kinematics."""

    def __init__(self, robot: RobotConfig = PANDA_2F85, config: KinematicsConfig | None = None) -> None:
        self.robot = robot
        self.config = config or KinematicsConfig()
        self._model = _arm_model(robot)
        self._data = mujoco.MjData(self._model)
        self._site = self._model.site(TOOL_SITE).id
        self._configuration = mink.Configuration(self._model)
        self._frame = mink.FrameTask(
            TOOL_SITE, "site", position_cost=1.0, orientation_cost=self.config.orientation_cost
        )
        posture = mink.PostureTask(self._model, cost=self.config.posture_cost)
        posture.set_target(np.array(robot.home))
        self._tasks = (self._frame, posture)
        self._limits = (mink.ConfigurationLimit(self._model, gain=1.0),)
        self._hemisphere = np.zeros(4)
        self._hemisphere = self.forward(np.array(robot.home)).quaternion
        self._low, self._high = np.array(robot.position_min), np.array(robot.position_max)

    def forward(self, positions: np.ndarray) -> Pose:
        """Return the tool pose for arm joint ``positions`` (7,) rad; quaternions lie on the side of home's."""
        data = self._data
        data.qpos[:] = checked("arm positions", positions, (len(self.robot.arm_joints),))
        mujoco.mj_kinematics(self._model, data)
        quaternion = np.empty(4)
        mujoco.mju_mat2Quat(quaternion, data.site_xmat[self._site])
        if quaternion @ self._hemisphere < 0:  # no sign flips around pointing down, where w is about 0
            quaternion = -quaternion
        return Pose(data.site_xpos[self._site].copy(), quaternion)

    def inverse(self, target: Pose, start: np.ndarray) -> np.ndarray:
        """Return arm joint positions (7,) rad within the limits whose tool pose is nearest to ``target``.

        Args:
            target: tool pose in base_link.
            start: arm joint positions to search from (7,) rad; the nearer, the more exact the answer.
        """
        start = checked("start positions", start, (len(self.robot.arm_joints),))
        self._frame.set_target(mink.SE3(np.concatenate((target.quaternion, target.position))))
        self._configuration.update(np.clip(start, self._low, self._high))
        for _ in range(self.config.iterations):
            step = mink.solve_ik(
                self._configuration,
                self._tasks,
                dt=1.0,
                solver="daqp",
                damping=self.config.damping,
                limits=self._limits,
            )
            self._configuration.integrate_inplace(step, 1.0)
        return np.clip(self._configuration.q, self._low, self._high)


@functools.lru_cache(maxsize=4)
def _arm_model(robot: RobotConfig) -> mujoco.MjModel:
    return kinematic_spec(robot).compile()
