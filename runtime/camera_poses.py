"""Where a robot's cameras are, from its configuration and its joints."""

from __future__ import annotations

import numpy as np

from engram.core.contracts import Kinematics
from engram.core.geometry import make_pose, rotation, to_frame
from engram.core.robot import RobotConfig
from engram.core.types import Pose


class CameraPoses:
    """The optical frames of ``robot``'s cameras in base_link."""

    def __init__(self, robot: RobotConfig, kinematics: Kinematics) -> None:
        self._arm, self._kinematics = len(robot.arm_joints), kinematics
        self.fixed = {camera.name: camera.pose() for camera in robot.cameras if camera.fixed}
        mounted = [camera for camera in robot.cameras if not camera.fixed]
        home = np.array(robot.home)
        self.unknown = {c.name: c.frame for c in mounted if kinematics.link(c.frame, home) is None}
        """Camera -> its link, of those whose link the kinematics do not know."""
        self._mounted = {c.name: c.pose() for c in mounted if c.name not in self.unknown}

    def moving(self, positions: np.ndarray) -> dict[str, Pose]:
        """Return the poses of the cameras on moving links for joint ``positions`` (arm, gripper) rad."""
        found = {}
        for name, mount in self._mounted.items():
            link = self._kinematics.link(mount.frame, positions[: self._arm])
            assert link is not None
            found[name] = make_pose(to_frame(mount.position, link), rotation(link) * rotation(mount))
        return found
