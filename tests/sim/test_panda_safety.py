"""The safety filter on the Panda's own kinematics, where joint-wise limits used to bend the tool's way."""

import numpy as np
import pytest

from engram.core.pipeline import CommandPipeline
from engram.core.robot import PANDA_2F85
from engram.core.types import JointState
from engram.sim.robots.kinematics import ModelKinematics

DT = 0.1


class Arm:
    """A Panda that goes exactly where it is told, driven through controller and safety filter."""

    def __init__(self) -> None:
        self.kinematics = ModelKinematics(PANDA_2F85)
        self.pipeline = CommandPipeline(self.kinematics, PANDA_2F85)
        self.positions = np.append(PANDA_2F85.home, PANDA_2F85.gripper_open)
        self.velocities = np.zeros(8)
        self.steps = 0

    def tool(self) -> np.ndarray:
        return self.kinematics.forward(self.positions[:7]).position

    def move(self, direction, steps: int) -> list[str]:
        """Push the tool at full speed along ``direction`` and return why each step was held, if it was."""
        held = []
        for _ in range(steps):
            stamp = self.steps * round(DT * 1e9)
            joints = JointState(stamp, PANDA_2F85.joint_names, self.positions, self.velocities)
            command = self.pipeline.step_action(joints, np.array([*direction, 0, 0, 0, -1.0])).command
            self.velocities = (command.positions - self.positions) / DT
            self.positions = command.positions.copy()
            self.steps += 1
            held.append(command.held)
        return held


@pytest.mark.parametrize("way_out", [(1, 0, 0), (1, 0, -0.5), (1, -1, 0), (1, 0.5, 0), (1, 0, 0.5)])
def test_a_stretched_arm_may_move_back(way_out):
    arm = Arm()
    arm.move(way_out, 30)
    stretched = arm.tool()
    assert stretched[0] > 0.7
    assert set(arm.move((-1, 0, 0), 8)) <= {"", "workspace"}  # the IK leads it sideways, over the edge of the workspace
    assert arm.tool()[0] < stretched[0] - 0.08


def test_a_stretched_arm_never_exceeds_the_limits():
    arm, rng = Arm(), np.random.default_rng(0)
    arm.move((1, 0, 0), 30)
    speed, step = np.array(PANDA_2F85.velocity_max), np.array(PANDA_2F85.acceleration_max) * DT
    low, high = np.array(PANDA_2F85.position_min), np.array(PANDA_2F85.position_max)
    for _ in range(60):
        before = arm.velocities[:7]
        held = arm.move(rng.uniform(-1, 1, 3), 1)[0]
        positions, velocities = arm.positions[:7], arm.velocities[:7]
        assert ((low <= positions) & (positions <= high)).all()
        if not held:
            free = (low < positions) & (positions < high)  # a joint that meets its end stops there
            assert (np.abs(velocities) <= speed + 1e-9).all()
            assert (np.abs(velocities - before) <= step + 1e-9)[free].all()
    assert arm.pipeline.filter.counts["velocity_limited"] > 0
    assert arm.pipeline.filter.counts["acceleration_limited"] > 0


def test_from_rest_a_limited_step_is_a_part_of_the_wanted_one():
    arm = Arm()
    wanted = arm.positions + np.array([0.9, -0.3, 0.1, 0.5, 0.0, 0.2, -0.7, 0.0])
    rest = JointState(0, PANDA_2F85.joint_names, arm.positions, np.zeros(8))
    moved = (arm.pipeline.filter.filter(wanted, rest, DT).positions - arm.positions)[:7]
    part = moved @ (wanted - arm.positions)[:7] / np.sum((wanted - arm.positions)[:7] ** 2)
    assert part == pytest.approx(15.0 * DT * DT / 0.9)  # joint 1 starts with 15 rad/s^2
    np.testing.assert_allclose(moved, part * (wanted - arm.positions)[:7], atol=1e-12)
