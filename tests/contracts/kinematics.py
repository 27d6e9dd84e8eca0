"""The law that every Kinematics keeps: inverse undoes forward, and the same question gets the same answer."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.contracts import Kinematics
from engram.core.geometry import make_pose, rotation
from engram.core.robot import RobotConfig


class KinematicsContract:
    """Subclass as ``TestX`` and say how to make one."""

    position_tolerance_m = 5e-4

    @abstractmethod
    def make(self) -> tuple[Kinematics, RobotConfig]:
        """Return the implementation and the robot it belongs to."""

    def test_inverse_reaches_a_nearby_target(self):
        kinematics, robot = self.make()
        home = np.array(robot.home)
        start = kinematics.forward(home)
        rng = np.random.default_rng(1)
        for _ in range(10):
            target = make_pose(start.position + rng.uniform(-0.04, 0.04, 3), rotation(start))
            solved = kinematics.inverse(target, home)
            assert solved.shape == home.shape
            error = np.linalg.norm(kinematics.forward(solved).position - target.position)
            assert error < self.position_tolerance_m

    def test_inverse_stays_within_the_joint_limits(self):
        kinematics, robot = self.make()
        home = np.array(robot.home)
        far = make_pose(
            kinematics.forward(home).position + np.array([2.0, 0, 0]), Rotation.from_euler("y", 180, degrees=True)
        )
        solved = kinematics.inverse(far, home)
        assert np.isfinite(solved).all()
        assert (solved >= np.array(robot.position_min) - 1e-6).all()
        assert (solved <= np.array(robot.position_max) + 1e-6).all()

    def test_the_same_question_gets_the_same_answer_bit_for_bit(self):
        first, robot = self.make()
        second, _ = self.make()
        home = np.array(robot.home)
        start = first.forward(home)
        target = make_pose(start.position + np.array([0.02, -0.01, 0.03]), rotation(start))
        first.inverse(make_pose(start.position - 0.02, rotation(start)), home)  # no memory of earlier questions
        np.testing.assert_array_equal(first.inverse(target, home), second.inverse(target, home))

    def test_questions_do_not_change_what_was_given(self):
        kinematics, robot = self.make()
        home = np.array(robot.home)
        kept = home.copy()
        kinematics.inverse(kinematics.forward(home), home)
        np.testing.assert_array_equal(home, kept)
