"""What of a robot a LeRobot policy takes and gives: cameras, state, actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from lerobot.configs.types import FeatureType
from torch import Tensor

from engram.core.contracts import Kinematics
from engram.core.control import proprioception
from engram.core.errors import InvalidInputError, unknown_name
from engram.core.robot import RobotConfig
from engram.core.types import EE_ACTION_DIM, ActionSpace, CameraFrame, JointState

IMAGE_PREFIX = "observation.images."
STATE = "observation.state"
EMPTY_CAMERA = "observation.images.empty_camera_"
"""Before the number of an image that LeRobot's vision-language-action policies fill with nothing."""


@dataclass(frozen=True)
class CameraInput:
    """An image that a policy takes."""

    feature: str  # its name in a dataset of the robot's, before the preprocessor renames it
    camera: str  # of the robot
    height: int  # px, as the policy was trained
    width: int

    def image(self, frame: CameraFrame) -> Tensor:
        """Return what ``frame`` shows (3, height, width) float32 in [0, 1], area-downsampled where it is larger.

        Raises InvalidInputError for a frame that is smaller or of another aspect ratio.
        """
        image = torch.tensor(frame.color).permute(2, 0, 1).to(torch.float32) / 255.0
        height, width = image.shape[1:]
        if (height, width) == (self.height, self.width):
            return image
        if height < self.height or width < self.width or not alike(height, width, self.height, self.width):
            raise InvalidInputError(
                f"camera {self.camera!r}: {height} x {width} px; the policy takes {self.height} x {self.width} px, or "
                "larger images of the same aspect ratio"
            )
        return F.interpolate(image[None], (self.height, self.width), mode="area")[0]


def alike(height: int, width: int, trained_height: int, trained_width: int) -> bool:
    """Return whether images of two sizes have the same aspect ratio, to within a pixel of the first."""
    return abs(width * trained_height - height * trained_width) < max(height, trained_height)


@dataclass(frozen=True)
class RobotFeatures:
    """The features of a policy, by what they are on a robot."""

    cameras: tuple[CameraInput, ...]
    joints_alone: bool | None  # the state is the joints' positions, else our proprioception; None = it takes no state
    space: ActionSpace

    def state(self, joints: JointState, kinematics: Kinematics, robot: RobotConfig) -> Tensor:
        """Return the state (n,) float32: joint positions [rad], the gripper's last, or :func:`proprioception`."""
        if self.joints_alone:
            return torch.tensor(joints.positions, dtype=torch.float32)
        return torch.from_numpy(proprioception(joints, kinematics, robot))


def robot_features(config: Any, renames: Mapping[str, str], robot: RobotConfig) -> RobotFeatures:
    """Return what the policy of ``config`` takes and gives, on ``robot``.

    Args:
        config: LeRobot's configuration of the policy.
        renames: the preprocessor's: feature of the robot -> what the policy calls it.
        robot: what it is to drive.

    Raises:
        UnknownNameError: it takes a camera that the robot does not have; lists those it has.
        InvalidInputError: it takes something else that a robot does not measure; its state or action has another
            length than those of the robot; or its action may be joint positions or a tool motion.
    """
    before = {policys: robots for robots, policys in renames.items()}
    images = {key: feature for key, feature in config.image_features.items() if not key.startswith(EMPTY_CAMERA)}
    cameras = tuple(_camera(before.get(key, key), feature.shape, robot) for key, feature in images.items())
    for key, feature in (config.input_features or {}).items():
        if feature.type is not FeatureType.VISUAL and before.get(key, key) != STATE:
            raise InvalidInputError(
                f"policy type {config.type!r} takes {key!r}; robot {robot.name!r} measures {STATE} and "
                f"{IMAGE_PREFIX}{{{', '.join(robot.camera_names)}}}"
            )
    joints_alone = _joints_alone(config, robot)
    return RobotFeatures(cameras, joints_alone, _space(config, robot, joints_alone))


def check_units(
    stats: Mapping[str, Mapping[str, Any]], features: RobotFeatures, robot: RobotConfig, action: str = "action"
) -> None:
    """Raise InvalidInputError where a policy's joint positions were recorded in another unit than rad.

    LeRobot saves no unit, but the mean of what it trained on (``stats``, by feature): one that lies further beyond a
    joint's range than that is wide is no angle of this joint in rad. ``lerobot-record`` often writes degrees.
    """
    low, high = np.array(robot.position_min), np.array(robot.position_max)
    joints = len(robot.arm_joints)
    for name, counts in ((STATE, features.joints_alone), (action, features.space == "joint_position")):
        mean = stats.get(name, {}).get("mean")
        if not counts or mean is None:
            continue
        mean = np.asarray(mean, np.float64).reshape(-1)[:joints]
        beyond = np.maximum(low - mean, mean - high) - (high - low)
        if len(mean) == joints and beyond.max() > 0.0:
            worst = int(beyond.argmax())
            raise InvalidInputError(
                f"{name}: {robot.arm_joints[worst]} was {mean[worst]:.1f} on average in training, its range is "
                f"{low[worst]:.2f} to {high[worst]:.2f} rad: convert the recorded angles to rad, and train again"
            )


def _camera(feature: str, shape: tuple[int, ...], robot: RobotConfig) -> CameraInput:
    names = [f"{IMAGE_PREFIX}{name}" for name in robot.camera_names]
    if not feature.startswith(IMAGE_PREFIX) or (names and feature not in names):
        raise unknown_name(f"camera image of robot {robot.name}", feature, names)
    _, height, width = shape
    return CameraInput(feature, feature.removeprefix(IMAGE_PREFIX), height, width)


def _joints_alone(config: Any, robot: RobotConfig) -> bool | None:
    if config.robot_state_feature is None:
        return None
    (length,) = config.robot_state_feature.shape
    joints = len(robot.joint_names)
    if length not in (robot.state_dim, joints):
        raise InvalidInputError(
            f"{STATE}: the policy takes {length} numbers, expected {robot.state_dim} (tool pose, gripper and arm "
            f"joints of robot {robot.name!r}, as engram record writes them) or {joints} (its joint positions)"
        )
    return bool(length == joints)


def _space(config: Any, robot: RobotConfig, joints_alone: bool | None) -> ActionSpace:
    (length,) = config.action_feature.shape if config.action_feature is not None else (0,)
    joints = len(robot.joint_names)
    if length == EE_ACTION_DIM == joints and joints_alone is not False:
        raise InvalidInputError(
            f"action: {length} numbers may be a relative tool motion or the {joints} joint positions of robot "
            f"{robot.name!r}, and a checkpoint does not say which; expected a policy that takes {robot.state_dim} "
            f"numbers of {STATE}, as engram record writes them: its action is a tool motion"
        )
    if length == EE_ACTION_DIM:
        return "ee_delta"
    if length == joints:
        return "joint_position"
    raise InvalidInputError(
        f"action: the policy gives {length} numbers, expected {EE_ACTION_DIM} (a relative tool motion, as engram "
        f"record writes it) or {joints} (joint positions of robot {robot.name!r}: {', '.join(robot.joint_names)})"
    )
