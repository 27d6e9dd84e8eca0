"""Forward and inverse kinematics of any arm's tool point, from the arm's simulated model."""

from __future__ import annotations

from dataclasses import dataclass

import mink
import mujoco
import numpy as np

from engram.core.arrays import checked
from engram.core.contracts import Kinematics
from engram.core.robot import RobotConfig
from engram.core.types import Pose
from engram.sim.robots.model import arm_model


@dataclass(frozen=True)
class KinematicsConfig:
    """How the inverse is searched."""

    iterations: int = 3
    """Quadratic programs solved per call, always this many: the result depends on the arguments alone."""
    orientation_cost: float = 0.3
    """Weight of a radian against a metre of position."""
    posture_cost: float = 1e-3
    """Pull of the elbow towards home, in the directions that the tool does not feel."""
    damping: float = 1e-6
    """Damping of every step: keeps the system regular."""
    lm_damping: float = 1.0
    """Damping that grows with the squared error: keeps the steps small where the target is out of reach."""


class ModelKinematics(Kinematics):
    """Tool pose from joints by MuJoCo, joints from tool pose by mink's differential inverse kinematics."""

    def __init__(self, robot: RobotConfig, config: KinematicsConfig | None = None) -> None:
        self.robot = robot
        self.config = config or KinematicsConfig()
        self._model = arm_model(robot)
        self._data = mujoco.MjData(self._model)
        self._site = self._model.site(robot.tool_site).id
        self._configuration = mink.Configuration(self._model)
        self._frame = mink.FrameTask(
            robot.tool_site,
            "site",
            position_cost=1.0,
            orientation_cost=self.config.orientation_cost,
            lm_damping=self.config.lm_damping,
        )
        posture = mink.PostureTask(self._model, cost=self.config.posture_cost)
        posture.set_target(np.array(robot.home))
        self._tasks = (self._frame, posture)
        self._home = np.array(robot.home)
        n = len(robot.arm_joints)
        self._rows = np.vstack((np.zeros((6, n)), self.config.posture_cost * np.eye(n)))  # frame's Jacobian, posture's
        self._limits = (mink.ConfigurationLimit(self._model, gain=1.0),)
        self._recent: dict[bytes, Pose] = {}
        self._hemisphere = np.zeros(4)
        self._hemisphere = self._forward(np.array(robot.home)).quaternion
        self._low, self._high = np.array(robot.position_min), np.array(robot.position_max)

    def forward(self, positions: np.ndarray) -> Pose:
        """Return the tool pose for arm joint ``positions`` (n,) rad; quaternions lie on the side of home's."""
        asked = checked("arm positions", positions, (len(self.robot.arm_joints),))
        key = asked.tobytes()
        if key not in self._recent:  # controller, safety filter and state vector ask for the same pose in turn
            if len(self._recent) >= 4:
                del self._recent[next(iter(self._recent))]
            self._recent[key] = self._forward(asked)
        return self._recent[key]

    def link(self, name: str, positions: np.ndarray) -> Pose | None:
        """Return the pose of the link ``name`` in base_link for arm joint ``positions`` (n,) rad; None where the link
        is not between base and tool."""
        number = mujoco.mj_name2id(self._model, mujoco.mjtObj.mjOBJ_BODY, name)
        if number < 0:
            return None
        self._place(checked("arm positions", positions, (len(self.robot.arm_joints),)))
        return Pose(self._data.xpos[number].copy(), self._data.xquat[number].copy())

    def _place(self, positions: np.ndarray) -> None:
        self._data.qpos[:] = positions
        mujoco.mj_kinematics(self._model, self._data)

    def _forward(self, positions: np.ndarray) -> Pose:
        data = self._data
        self._place(positions)
        quaternion = np.empty(4)
        mujoco.mju_mat2Quat(quaternion, data.site_xmat[self._site])
        if quaternion @ self._hemisphere < 0:  # no sign flips around pointing down, where w is about 0
            quaternion = -quaternion
        return Pose(data.site_xpos[self._site].copy(), quaternion)

    def inverse(self, target: Pose, start: np.ndarray) -> np.ndarray:
        """Return arm joint positions (n,) rad within the limits whose tool pose is nearest to ``target``.

        Args:
            target: tool pose in base_link.
            start: arm joint positions to search from (n,) rad; the nearer, the more exact the answer.
        """
        start = checked("start positions", start, (len(self.robot.arm_joints),))
        self._frame.set_target(mink.SE3(np.concatenate((target.quaternion, target.position))))
        self._configuration.update(np.minimum(np.maximum(start, self._low), self._high))
        for _ in range(self.config.iterations):
            self._configuration.integrate_inplace(self._solve(), 1.0)
        return np.minimum(np.maximum(self._configuration.q, self._low), self._high)

    def _solve(self) -> np.ndarray:
        """Return one step of joint positions (n,) rad that best serves the tasks within the limits.

        Where no limit is active, the quadratic program is a linear system: five times as fast, the same optimum.
        """
        here = self._configuration.q
        step = self._unlimited(here)
        reached = here + step
        if (reached >= self._low).all() and (reached <= self._high).all():
            return step
        damping = self.config.damping
        return mink.solve_ik(self._configuration, self._tasks, 1.0, solver="daqp", damping=damping, limits=self._limits)

    def _unlimited(self, here: np.ndarray) -> np.ndarray:
        """Return the optimum (n,) rad without limits: mink's program, bit for bit, its constant part built once."""
        jacobian, error, lm_damping = self._frame.compute_qp_residual(self._configuration)
        self._rows[:6] = jacobian
        errors = np.concatenate((error, self.config.posture_cost * (self._home - here)))
        system = self._rows.T @ self._rows
        system.flat[:: len(here) + 1] += self.config.damping + lm_damping
        return np.linalg.solve(system, errors @ self._rows)
