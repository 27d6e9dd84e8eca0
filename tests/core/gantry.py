"""A three-axis gantry: a robot whose kinematics can be checked by hand (tool position = joint positions)."""

from __future__ import annotations

from dataclasses import replace

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
SEEN = replace(
    GANTRY,
    cameras=(
        CameraConfig("front", (0.1, 0.2, 0.3), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), size=(4, 6), calibration=(4, 4, 3, 2)),
        CameraConfig("wrist", (0.0, 0.0, 0.1), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), frame="hand"),
        CameraConfig("side", (0.0, 0.0, 0.1), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), frame="elbow"),
    ),
)
"""With calibrated cameras: beside it, on its hand, and on a link that its kinematics do not know."""


class GantryKinematics(Kinematics):
    """Tool position = joint positions; the tool never turns."""

    def __init__(self, robot: RobotConfig = GANTRY) -> None:
        self.robot = robot

    def forward(self, positions: np.ndarray) -> Pose:
        return make_pose(np.asarray(positions), Rotation.identity())

    def inverse(self, target: Pose, start: np.ndarray) -> np.ndarray:
        return np.array(target.position)

    def link(self, name: str, positions: np.ndarray) -> Pose | None:
        return self.forward(positions) if name == "hand" else None


def joints(x: float = 0.0, y: float = 0.0, z: float = 0.0, *, gripper: float = 0.0, stamp_ns: int = 0) -> JointState:
    """Return a resting joint state of the gantry."""
    return JointState(stamp_ns, GANTRY.joint_names, np.array([x, y, z, gripper]), np.zeros(4))
