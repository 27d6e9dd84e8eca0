"""The barrier: plain numbers on the gantry, and the Panda against collision meshes that it does not know."""

from dataclasses import replace

import numpy as np
import pytest

from engram.benchmarks.makers_meshes import MakersMeshes
from engram.core.collision import CollisionConfig, Obstacle
from engram.core.errors import InvalidInputError
from engram.core.pipeline import CommandPipeline
from engram.core.registry import make_barrier
from engram.core.robot import PANDA_2F85
from engram.core.types import ActionChunk, JointState
from engram.sim.robots.barrier import ModelBarrier
from engram.sim.robots.certificate import SAG_M
from engram.sim.robots.collision_model import OBSTACLES_MAX
from engram.sim.robots.kinematics import ModelKinematics
from examples.robot import GANTRY
from tests.contracts.barrier import MotionBarrierContract, at_once

WALL = Obstacle("wall", (0.7, 0.0, 0.3), (0.02, 0.4, 0.6))
DT_NS = 100_000_000


class TestGantry(MotionBarrierContract):
    def make(self):
        return ModelBarrier(GANTRY)

    def free(self):
        return np.array([0.5, 0.0, 0.3, 0.0]), np.array([0.6, 0.1, 0.35, 0.02])

    def blocked(self):
        return np.array([0.5, 0.0, 0.05, 0.0]), np.array([0.5, 0.02, 0.005, 0.0])

    def obstacle(self):
        return Obstacle("post", (0.6, 0.1, 0.35), (0.1, 0.1, 0.1))


class TestPanda(MotionBarrierContract):
    def make(self):
        return ModelBarrier(PANDA_2F85)

    def free(self):
        start = np.array((*PANDA_2F85.home, 0.0))
        return start, start + 0.05

    def blocked(self):  # the elbow folds until the hand meets the table
        start = np.array((*PANDA_2F85.home, 0.0))
        start[1] = 0.35
        return start, start + np.array([0, 0.3, 0, 0, 0, 0, 0, 0])

    def obstacle(self):
        return Obstacle("post", (0.45, 0.0, 0.3), (0.1, 0.1, 0.6))


def test_fingers_stop_above_the_table():
    start, goal = np.array([0.5, 0.0, 0.05, 0.0]), np.array([0.53, 0.0, -0.05, 0.0])
    barrier = ModelBarrier(GANTRY)
    safe = barrier.limit(start, goal, at_once)
    # their tips are 0.01 below the tool; sideways nothing is in the way
    np.testing.assert_allclose(safe, [0.53, 0.0, 0.01, 0.0], atol=6e-4)
    assert safe[2] > 0.01
    assert barrier.nearest in ("left/table", "right/table")


def test_a_wall_stops_the_hand_at_the_margin_and_lets_it_slide():
    robot = replace(GANTRY, collision=CollisionConfig(obstacle_margin_m=0.03, obstacles=(WALL,)))
    start, goal = np.array([0.62, 0.0, 0.3, 0.0]), np.array([0.69, 0.05, 0.3, 0.0])
    barrier = ModelBarrier(robot)
    safe = barrier.limit(start, goal, at_once)
    # the hand's box reaches 0.03 ahead; the wall begins at 0.69
    np.testing.assert_allclose(safe, [0.63, 0.05, 0.3, 0.0], atol=6e-4)
    assert barrier.nearest == "hand/wall"


def test_a_thin_wall_is_not_jumped_over():
    robot = replace(GANTRY, collision=CollisionConfig(obstacles=(replace(WALL, size=(0.002, 0.4, 0.6)),)))
    start, goal = np.array([0.5, 0.0, 0.3, 0.0]), np.array([0.9, 0.0, 0.3, 0.0])
    safe = ModelBarrier(robot).limit(start, goal, at_once)
    assert safe is None or safe[0] < 0.66


def test_a_turned_obstacle_is_turned():
    post = Obstacle("post", (0.7, 0.0, 0.3), (0.1, 0.1, 0.6), yaw_rad=np.pi / 4)
    robot = replace(GANTRY, collision=CollisionConfig(obstacle_margin_m=0.0, obstacles=(post,)))
    start, goal = np.array([0.55, 0.0, 0.3, 0.0]), np.array([0.64, 0.0, 0.3, 0.0])
    safe = ModelBarrier(robot).limit(start, goal, at_once)
    assert safe is not None
    assert 0.7 - 0.1 / np.sqrt(2) - safe[0] == pytest.approx(0.03, abs=6e-4)  # its edge points at the hand


def test_what_is_wanted_of_a_robot():
    assert make_barrier(replace(GANTRY, collision=None)) is None
    assert make_barrier(replace(GANTRY, model="", kinematics="somewhere:else")) is None
    assert isinstance(make_barrier(GANTRY), ModelBarrier)
    with pytest.raises(InvalidInputError, match="its collision is None"):
        ModelBarrier(replace(GANTRY, collision=None))
    many = [replace(WALL, name=f"wall{i}") for i in range(OBSTACLES_MAX + 1)]
    with pytest.raises(InvalidInputError, match="expected at most"):
        ModelBarrier(GANTRY).set_obstacles(many)
    with pytest.raises(InvalidInputError, match="above 0"):
        Obstacle("flat", (0, 0, 0), (1, 1, 0))
    with pytest.raises(InvalidInputError, match="a name twice"):
        CollisionConfig(obstacles=(WALL, WALL))


def hostile(robot, seed: int, steps: int) -> tuple[int, float]:
    """Drive an arm that goes where it is told towards random joint positions; return collisions and the lowest point.

    The collisions are steps with one, looked at four times between two commands.
    """
    meshes, rng = MakersMeshes(), np.random.default_rng(seed)
    robot = replace(robot, workspace_min=(-2.0,) * 3, workspace_max=(2.0,) * 3)  # the barrier alone
    pipeline = CommandPipeline(ModelKinematics(robot), robot, lockstep=False)
    low, high = np.array((*robot.position_min, 0.0)), np.array((*robot.position_max, 0.8))
    here, velocity, target = np.array((*robot.home, 0.0)), np.zeros(8), np.zeros(8)
    collided, lowest = 0, np.inf
    for step in range(steps):
        if step % 12 == 0:
            target = rng.uniform(low, high)
        joints = JointState(step * DT_NS, robot.joint_names, here, velocity)
        chunk = ActionChunk(step * DT_NS, 0, "joint_position", target[None], 0.1, 1, "hostile")
        decision = pipeline.step(joints, chunk)
        assert decision is not None
        there = decision.command.positions
        hit = False
        for share in (0.25, 0.5, 0.75, 1.0):
            meshes.place(here + share * (there - here))
            hit |= meshes.overlaps()
            lowest = min(lowest, meshes.lowest())
        collided += hit
        here, velocity = there.copy(), (there - here) / 0.1
    return collided, lowest


def test_a_hostile_policy_brings_no_link_into_another_or_into_the_table():
    collided, lowest = hostile(PANDA_2F85, 0, 250)
    assert collided == 0
    assert lowest >= -SAG_M
    collided, lowest = hostile(replace(PANDA_2F85, collision=None), 0, 250)
    assert collided > 10
    assert lowest < -0.1


def test_fingers_count_where_they_are_and_not_only_where_they_were_told_to_be():
    """What the fingers hold keeps them open: the outer faces are then wider apart than commanded."""
    post = Obstacle("post", (0.5, 0.16, 0.31), (0.06, 0.1, 0.02))  # its near face at y = 0.11, beside the fingers
    robot = replace(GANTRY, collision=CollisionConfig(obstacle_margin_m=0.0, obstacles=(post,)))
    pipeline = CommandPipeline(ModelKinematics(robot), robot, lockstep=False)
    ys = {}
    for measured in (0.04, 0.0):  # closed: the left one's outer face at y = 0.014; open: at 0.054
        here = np.array([0.5, 0.05, 0.3, measured])
        pipeline.reset()
        for step in range(8):
            joints = JointState((step + 1) * DT_NS, robot.joint_names, here, np.zeros(4))
            targets = np.array([[0.5, 0.09, 0.3, 0.04]])
            chunk = ActionChunk((step + 1) * DT_NS, 0, "joint_position", targets, 0.1, 1, "v")
            decision = pipeline.step(joints, chunk)
            assert decision is not None
            here = np.append(decision.command.positions[:3], measured)
        ys[measured] = here[1]
    assert ys[0.04] == pytest.approx(0.09)
    assert ys[0.0] == pytest.approx(0.11 - 0.054, abs=1e-3)
