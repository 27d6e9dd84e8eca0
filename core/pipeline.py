"""From an action to a safe joint command: the one decision that the safety node and the in-process loop both make."""

from __future__ import annotations

import numpy as np

from engram.core.contracts import Kinematics
from engram.core.control import ChunkExecutor, ControlConfig, EndEffectorController
from engram.core.errors import InvalidInputError
from engram.core.robot import RobotConfig
from engram.core.safety import SafetyConfig, SafetyFilter
from engram.core.types import JointCommand, JointState


class CommandPipeline:
    """Action chunk -> controller -> safety filter: what the safety node runs, without its topics."""

    def __init__(
        self,
        kinematics: Kinematics,
        robot: RobotConfig,
        *,
        lockstep: bool = True,
        control: ControlConfig | None = None,
        safety: SafetyConfig | None = None,
    ) -> None:
        self.executor = ChunkExecutor(lockstep=lockstep)
        self.controller = EndEffectorController(kinematics, robot, control)
        self.filter = SafetyFilter(robot, kinematics, safety)

    def reset(self) -> None:
        """Begin an episode: forget chunk, target and previous command; a latched stop stays latched."""
        self.executor.reset()
        self.controller.reset()
        self.filter.forget()

    def command(self, joints: JointState, override: np.ndarray | None = None) -> JointCommand | None:
        """Return the safe command for the step at ``joints.stamp_ns``; None when a new chunk is due first.

        ``override`` (7,) is a human's action, which goes before the policy's.
        """
        action = self.executor.action(joints.stamp_ns) if override is None else override
        if action is None and not self.filter.stopped:
            return None
        return self.execute(action, joints)

    def execute(self, action: np.ndarray | None, joints: JointState, age_s: float = 0.0) -> JointCommand:
        """Return the safe command for ``action`` (7,), or a hold when there is none or it is not fit to run.

        ``age_s`` is how long ago ``joints`` were measured [s]: too old and the robot holds.
        """
        command = self._safe(action, joints, age_s)
        if command.held:
            self.executor.held(joints.stamp_ns)
        return command

    def _safe(self, action: np.ndarray | None, joints: JointState, age_s: float) -> JointCommand:
        duration = self.controller.config.control_dt_s
        if self.filter.stopped or action is None:
            return self.filter.filter(None, joints, duration)
        try:
            wanted = self.controller.command(action, joints).positions
        except InvalidInputError:  # non-finite or misshapen: the filter holds and counts it
            wanted = np.full(len(joints.names), np.nan)
        return self.filter.filter(wanted, joints, duration, age_s)
