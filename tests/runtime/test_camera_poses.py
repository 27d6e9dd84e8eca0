"""Where cameras are, against poses worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from engram.core.camera import CameraConfig
from engram.core.geometry import make_pose
from engram.core.robot import PANDA_2F85
from engram.runtime.camera_poses import CameraPoses
from engram.sim.robots.kinematics import ModelKinematics
from engram.sim.robots.so101 import SO101
from engram.sim.world import MujocoWorld, WorldConfig
from tests.core.gantry import GANTRY, GantryKinematics

EYE = CameraConfig("eye", (0.1, 0.0, 0.0), (0.0, -1.0, 0.0), (0.0, 0.0, 1.0), frame="hand")  # looks along x
ELBOW = replace(EYE, name="elbow", frame="elbow")


class TurnedHand(GantryKinematics):
    """The hand is a quarter turn about z from the tool, and no other link is known."""

    def link(self, name, positions):
        return make_pose(positions, Rotation.from_euler("z", 90, degrees=True)) if name == "hand" else None


def test_a_camera_on_a_link_moves_and_turns_with_it_and_one_on_an_unknown_link_is_named():
    places = CameraPoses(replace(GANTRY, cameras=(*GANTRY.cameras, EYE, ELBOW)), TurnedHand())
    assert list(places.fixed) == ["front"] and places.unknown == {"elbow": "elbow"}
    moving = places.moving(np.array([0.2, 0.3, 0.4, 0.0]))
    assert list(moving) == ["eye"] and moving["eye"].frame == "base_link"
    np.testing.assert_allclose(
        moving["eye"].position, [0.2, 0.4, 0.4], atol=1e-12
    )  # 0.1 m along the hand's x, base's y
    ahead = Rotation.from_quat(moving["eye"].quaternion, scalar_first=True).apply([0.0, 0.0, 1.0])
    np.testing.assert_allclose(ahead, [0.0, 1.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("robot", [PANDA_2F85, SO101], ids=lambda robot: robot.name)
def test_the_cameras_are_where_the_simulation_has_them(robot):
    world = MujocoWorld(WorldConfig(), robot)
    seen = world.reset("reach", 3)
    places = CameraPoses(robot, ModelKinematics(robot))
    assert not places.unknown
    for name, pose in (places.fixed | places.moving(seen.joints.positions)).items():
        np.testing.assert_allclose(pose.position, seen.camera(name).pose.position, atol=1e-6)
        assert abs(pose.quaternion @ seen.camera(name).pose.quaternion) == pytest.approx(1.0, abs=1e-6)
