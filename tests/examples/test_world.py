"""examples/world.py through Gymnasium, the experts, recording, and in place of the tabletop anywhere."""

import gymnasium as gym
import numpy as np
import pytest

import engram.sim  # noqa: F401  # registers the environments
from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.types import JointCommand
from engram.runtime.record import RecordConfig, record
from engram.sim import WorldConfig, make_world
from engram.sim.worlds import make_mujoco_world
from engram.validation import evaluate_experts
from examples.world import NOISE, REACHED, WornWorkcell
from tests.contracts.world import WorldContract

NAME = "examples.world:WornWorkcell"
BLIND = WorldConfig(profile="none")


@pytest.mark.render
class TestWornWorkcell(WorldContract):
    def make(self):
        return WornWorkcell(WorldConfig(image_size=32))


def moved(world):
    """Return how far the first joint goes when it is told to go 0.1 rad [rad]."""
    joints = world.reset("reach", 0).joints
    goal = joints.positions.copy()
    goal[0] += 0.1
    after = world.step(JointCommand(joints.stamp_ns, joints.names, goal, 0.1)).joints
    world.close()
    return after.positions[0] - joints.positions[0]


def test_the_arm_goes_the_share_of_the_way_that_its_servos_reach():
    assert moved(make_world(NAME, BLIND)) / moved(make_world("tabletop", BLIND)) == pytest.approx(REACHED, abs=0.02)


@pytest.mark.render
def test_the_cameras_see_the_tabletop_with_noise_that_the_seed_fixes():
    worn, clean = make_world(NAME, WorldConfig(image_size=64)), make_world("tabletop", WorldConfig(image_size=64))
    first, again, plain = (world.reset("reach", 5).camera("front").color for world in (worn, worn, clean))
    np.testing.assert_array_equal(first, again)
    middle = (plain > 60) & (plain < 195)  # where nothing is clipped
    assert np.std(first.astype(int)[middle] - plain.astype(int)[middle]) == pytest.approx(NOISE, rel=0.1)
    worn.close(), clean.close()


def test_gymnasium_and_the_experts_take_it():
    env = gym.make("engram/Reach-v0", obs_type="state", world=NAME)
    assert isinstance(env.unwrapped.world, WornWorkcell)
    env.close()
    worn, clean = (evaluate_experts(("reach",), episodes=3, progress=False, world=name) for name in (NAME, "tabletop"))
    assert worn.per_task["reach"].successes == 3
    assert worn.mean_steps["reach"] > clean.mean_steps["reach"]


@pytest.mark.render
def test_record_takes_it(tmp_path):
    small = {"episodes": 1, "part_episodes": 1, "workers": 1, "image_size": 32, "noise": 0.0}
    assert record(RecordConfig(str(tmp_path / "worn"), tasks=("reach",), world=NAME, **small)).episodes == 1


def test_a_world_that_is_none_is_named():
    with pytest.raises(UnknownNameError, match="unknown world 'tabeltop'; did you mean 'tabletop'"):
        make_world("tabeltop")
    with pytest.raises(InvalidInputError, match="is the class GantryWorld, expected a MujocoWorld"):
        make_mujoco_world("tests.runtime.test_loop:GantryWorld")
    make_world("tests.runtime.test_loop:GantryWorld").close()
