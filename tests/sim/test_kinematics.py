"""The Panda's kinematics: the contract, and exactness along the ways that tasks take."""

import mink
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from engram.core.errors import InvalidInputError
from engram.core.geometry import make_pose, rotation
from engram.core.robot import PANDA_2F85
from engram.sim.robots.kinematics import ModelKinematics
from engram.sim.scene import SceneConfig
from engram.sim.world import MujocoWorld, WorldConfig
from tests.contracts.kinematics import KinematicsContract

HOME = np.array(PANDA_2F85.home)


class TestPanda(KinematicsContract):
    def make(self):
        return ModelKinematics(PANDA_2F85), PANDA_2F85


def test_steps_of_5_cm_over_the_table_end_within_half_a_millimetre():
    kinematics, rng = ModelKinematics(PANDA_2F85), np.random.default_rng(0)
    joints, down = HOME, rotation(kinematics.forward(HOME))
    for _ in range(60):
        goal = rng.uniform((0.38, -0.25, 0.02), (0.66, 0.25, 0.35))
        for _ in range(6):
            way = goal - kinematics.forward(joints).position
            position = goal - way * max(0.0, 1 - 0.05 / max(np.linalg.norm(way), 1e-9))
            target = make_pose(position, Rotation.from_euler("z", rng.uniform(-0.2, 0.2)) * down)
            joints = kinematics.inverse(target, joints)
            reached = kinematics.forward(joints)
            assert np.linalg.norm(reached.position - position) < 5e-4
            assert (rotation(reached) * rotation(target).inv()).magnitude() < 2e-3


def test_forward_agrees_with_the_simulated_arm():
    world = MujocoWorld(WorldConfig(profile="none"))
    world.load(SceneConfig())
    world.settle()
    site = world.data.site("tool")
    np.testing.assert_allclose(world.tool_pose().position, site.xpos, atol=2e-5)


def test_the_quaternion_does_not_flip_around_pointing_down():
    kinematics = ModelKinematics(PANDA_2F85)
    quaternions = []
    for tilt in np.linspace(-0.05, 0.05, 11):  # w goes through zero here
        joints = HOME.copy()
        joints[5] += tilt
        joints[6] += tilt
        quaternions.append(kinematics.forward(joints).quaternion)
    assert np.abs(np.diff(quaternions, axis=0)).max() < 0.02


def test_a_wrong_number_of_joints_is_refused():
    with pytest.raises(InvalidInputError, match=r"arm positions: shape \(6,\), expected \(7\)"):
        ModelKinematics(PANDA_2F85).forward(HOME[:6])


def test_a_step_without_limits_is_minks_program_bit_for_bit():
    kinematics, rng = ModelKinematics(PANDA_2F85), np.random.default_rng(1)
    for _ in range(50):
        start = HOME + rng.uniform(-0.4, 0.4, 7)
        there = kinematics.forward(HOME + rng.uniform(-0.4, 0.4, 7))
        kinematics._frame.set_target(mink.SE3(np.concatenate((there.quaternion, there.position))))
        kinematics._configuration.update(start)
        problem = mink.build_ik(
            kinematics._configuration, kinematics._tasks, 1.0, damping=kinematics.config.damping, limits=()
        )
        np.testing.assert_array_equal(kinematics._unlimited(start), np.linalg.solve(problem.P, -problem.q))
