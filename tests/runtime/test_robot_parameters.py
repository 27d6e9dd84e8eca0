"""The robot node's flat parameters, split by camera."""

import pytest

from engram.core.errors import InvalidInputError
from engram.runtime.parameters.robot import RobotNodeConfig

POSES = (0.1, 0.2, 0.3, 1.0, 0.0, 0.0, 0.0, 0.4, 0.5, 0.6, 0.0, 1.0, 0.0, 0.0)


def test_each_camera_gets_its_numbers_in_turn():
    config = RobotNodeConfig(camera_intrinsics=(4.0, 5.0, 3.0, 2.0), camera_poses=POSES)
    assert config.intrinsics_of(("front",)) == {"front": (4.0, 5.0, 3.0, 2.0)}
    assert config.poses_of(("front", "wrist")) == {"front": POSES[:7], "wrist": POSES[7:]}


def test_what_is_not_given_is_unknown():
    assert RobotNodeConfig().intrinsics_of(("front",)) == RobotNodeConfig().poses_of(("front",)) == {}


def test_too_few_numbers_are_refused():
    config = RobotNodeConfig(camera_intrinsics=(4.0, 5.0, 3.0), camera_poses=POSES)
    with pytest.raises(InvalidInputError, match="camera_intrinsics: 3 numbers, expected 4 for each of front, wrist"):
        config.intrinsics_of(("front", "wrist"))
    with pytest.raises(InvalidInputError, match="camera_poses: 14 numbers, expected 7 for each of front"):
        config.poses_of(("front",))
