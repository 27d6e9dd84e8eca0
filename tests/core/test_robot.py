"""A robot's configuration: its cameras and table, and how it is found by name."""

from dataclasses import replace

import numpy as np
import pytest

from engram.core.camera import CameraConfig
from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.registry import make_kinematics, make_robot
from engram.core.robot import PANDA_2F85, TableConfig
from tests.core.gantry import GANTRY, GantryKinematics

SIDE = CameraConfig.looking_at("side", (0.0, 1.0, 1.0), (0.0, 0.0, 0.0))


def test_cameras_keep_their_order_and_the_first_is_perception_s():
    robot = replace(GANTRY, cameras=(*GANTRY.cameras, SIDE))
    assert robot.camera_names == ("front", "side")
    assert (robot.perception_camera, robot.camera("side")) == ("front", SIDE)
    assert replace(GANTRY, cameras=(SIDE,), perception_camera="").perception_camera == "side"
    assert robot.chosen_cameras(("",)) == ("front", "side")
    assert robot.chosen_cameras(("side",)) == ("side",)


def test_wrong_cameras_are_named_with_the_valid_ones():
    with pytest.raises(InvalidInputError, match="front, front: a name twice"):
        replace(GANTRY, cameras=(*GANTRY.cameras, *GANTRY.cameras))
    with pytest.raises(UnknownNameError, match=r"perception_camera 'rear'.*front"):
        replace(GANTRY, perception_camera="rear")
    with pytest.raises(UnknownNameError, match=r"camera of robot panda_2f85 'rear'.*front, wrist"):
        PANDA_2F85.camera("rear")


def test_a_table_of_half_size_halves_the_layout_and_moves_it():
    table = TableConfig(scale=0.5, origin=(-0.05, 0.1))
    np.testing.assert_allclose(table.place(np.array([0.4, -0.2])), [0.15, 0.0])
    np.testing.assert_allclose(table.place(np.array([[0.4, -0.2, 0.1]])), [[0.15, 0.0, 0.05]])
    np.testing.assert_array_equal(TableConfig().place(np.array([0.1, 0.2])), [0.1, 0.2])  # to the bit
    with pytest.raises(InvalidInputError, match=r"TableConfig.scale: 0"):
        TableConfig(scale=0.0)


def test_the_state_is_as_long_as_the_arm_has_joints():
    assert (PANDA_2F85.state_dim, GANTRY.state_dim) == (15, 11)


def test_robots_are_found_by_name_and_by_where_they_are():
    assert make_robot("panda_2f85") is PANDA_2F85
    assert make_robot("tests.core.gantry:GANTRY") is GANTRY
    assert make_robot(GANTRY) is GANTRY
    assert isinstance(make_kinematics(GANTRY), GantryKinematics)
    with pytest.raises(UnknownNameError, match=r"robot 'panda'; did you mean 'panda_2f85'"):
        make_robot("panda")
    with pytest.raises(InvalidInputError, match=r"robot 'tests.core.gantry:joints' .* expected a RobotConfig"):
        make_robot("tests.core.gantry:joints")
    with pytest.raises(InvalidInputError, match="'gantry' names neither kinematics nor a model"):
        make_kinematics(replace(GANTRY, kinematics=""))
