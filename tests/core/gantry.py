"""A three-axis gantry: a robot whose kinematics can be checked by hand (tool position = joint positions)."""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.camera import CameraConfig
from engram.core.contracts import Kinematics
from engram.core.geometry import make_pose
from engram.core.robot import RobotConfig
from engram.core.types import JointState, Pose

GANTRY = RobotConfig(
    name="gantry",
    arm_joints=("x", "y", "z"),
    gripper_joint="gripper",
    position_min=(-1.0, -1.0, -1.0),
    position_max=(1.0, 1.0, 1.0),
    velocity_max=(1.0, 1.0, 1.0),
    acceleration_max=(5.0, 5.0, 5.0),
    home=(0.0, 0.0, 0.0),
    gripper_open=0.0,
    gripper_closed=0.8,
    gripper_velocity_max=8.0,
    workspace_min=(-0.5, -0.5, -0.5),
    workspace_max=(0.5, 0.5, 0.5),
    cameras=(CameraConfig.looking_at("front", (1.0, 0.0, 1.0), (0.0, 0.0, 0.0)),),
    kinematics="tests.core.gantry:GantryKinematics",
)


class GantryKinematics(Kinematics):
    """Tool position = joint positions; the tool never turns."""

    def __init__(self, robot: RobotConfig = GANTRY) -> None:
        self.robot = robot

    def forward(self, positions: np.ndarray) -> Pose:
        return make_pose(np.asarray(positions), Rotation.identity())

    def inverse(self, target: Pose, start: np.ndarray) -> np.ndarray:
        return np.array(target.position)


def joints(x: float = 0.0, y: float = 0.0, z: float = 0.0, *, gripper: float = 0.0, stamp_ns: int = 0) -> JointState:
    """Return a resting joint state of the gantry."""
    return JointState(stamp_ns, GANTRY.joint_names, np.array([x, y, z, gripper]), np.zeros(4))
