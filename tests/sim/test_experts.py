"""The experts do their jobs, keep no memory, and correct what goes wrong."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from engram.core.errors import UnknownNameError
from engram.core.geometry import make_pose
from engram.core.pipeline import CommandPipeline
from engram.sim.experts import EXPERTS, make_expert
from engram.sim.experts.base import funnel, square_yaw
from engram.sim.experts.noise import NoiseBursts, NoiseConfig
from engram.sim.tasks import TASKS
from engram.sim.tasks.placement import upright
from engram.sim.world import MujocoWorld, WorldConfig
from engram.validation.evaluation import ExpertRunner

SEEDS = range(5)


@pytest.fixture(scope="module")
def world() -> MujocoWorld:
    return MujocoWorld(WorldConfig(profile="none"))


def drive(world: MujocoWorld, task: str, steps: int, observation=None) -> None:
    """Go on with the running episode for ``steps`` or until it is done."""
    expert, pipeline = make_expert(task, world), CommandPipeline(world.kinematics, world.robot)
    observation = observation or world.observe()
    for _ in range(steps):
        if world.oracle_outcome().success:
            return
        observation = world.step(pipeline.step_action(observation.joints, expert.act()).command)


@pytest.mark.parametrize("name", TASKS)
def test_progress_grows_on_the_way_and_is_large_at_the_end(world: MujocoWorld, name: str) -> None:
    for seed in SEEDS:
        world.reset(name, seed)
        observation = world.observe()
        expert, pipeline = make_expert(name, world), CommandPipeline(world.kinematics, world.robot)
        seen = []
        while not world.oracle_outcome().over:
            seen.append(world.task.oracle_progress(world))
            observation = world.step(pipeline.step_action(observation.joints, expert.act()).command)
        assert world.oracle_outcome().success
        assert all(0.0 <= progress <= 1.0 for progress in seen)
        assert max(seen) > max(0.55, seen[0] + 0.3)
        assert seen[0] < max(seen[: len(seen) // 2 + 1]) <= max(seen)


def test_every_task_has_an_expert() -> None:
    assert EXPERTS.keys() == TASKS.keys()


def test_an_unknown_task_has_no_expert_and_the_valid_ones_are_listed(world: MujocoWorld) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown task 'juggle'; valid: .*open_drawer, .*pick_place"):
        make_expert("juggle", world)


@pytest.mark.parametrize("task", TASKS)
def test_does_the_job_in_a_short_episode(world: MujocoWorld, task: str) -> None:
    run = ExpertRunner(world)
    results = [run(task, seed) for seed in SEEDS]
    assert sum(r.oracle_success for r in results) >= 4
    assert np.mean([r.steps for r in results if r.oracle_success]) < 35


@pytest.mark.parametrize("task", ["pick_place", "press_button"])
def test_same_seed_same_commands_bit_for_bit(world: MujocoWorld, task: str) -> None:
    first, second = ExpertRunner(world)(task, 7), ExpertRunner(MujocoWorld(WorldConfig(profile="none")))(task, 7)
    np.testing.assert_array_equal(first.commands, second.commands)


@pytest.mark.parametrize("task", TASKS)
def test_actions_are_within_bounds_and_depend_on_the_state_alone(world: MujocoWorld, task: str) -> None:
    world.reset(task, 1)
    drive(world, task, 6)
    action = make_expert(task, world).act()
    old = make_expert(task, world)
    for _ in range(3):
        np.testing.assert_array_equal(old.act(), action)
    assert np.abs(action).max() <= 1.0


@pytest.mark.parametrize("task", ["pick_place", "stack"])
def test_a_cube_that_is_moved_away_is_fetched_again(world: MujocoWorld, task: str) -> None:
    world.reset(task, 2)
    drive(world, task, 15)
    cube = world.task.targets["color"]
    assert world.oracle_pose(cube).position[2] > 0.04  # lifted
    world.set_pose(cube, upright(np.array([0.60, -0.20]), 0.02))
    drive(world, task, TASKS[task].max_steps)
    assert world.oracle_outcome().success


def test_swapped_words_move_the_other_cube(world: MujocoWorld) -> None:
    world.reset("pick_place", 4)
    first, words = world.task.targets["color"], world.task.swapped_instruction()
    result = ExpertRunner(world)("pick_place", 4, words)
    assert result.oracle_success
    assert world.task.targets["color"] != first


def test_funnel_is_a_ramp() -> None:
    assert [funnel(d, 0.01, 0.03) for d in (0.0, 0.01, 0.02, 0.03, 1.0)] == pytest.approx([0, 0, 0.5, 1, 1])


@pytest.mark.parametrize(
    ("turned", "expected"), [(0.2, 0.2), (np.pi / 2 + 0.2, 0.2), (-0.3, -0.3), (1.0, 1.0 - np.pi / 2)]
)
def test_quarter_turns_of_a_square_look_the_same(turned: float, expected: float) -> None:
    pose = make_pose(np.zeros(3), Rotation.from_euler("z", turned))
    assert square_yaw(pose) == pytest.approx(expected)


def test_noise_comes_in_bursts_of_the_given_length_and_spares_the_gripper() -> None:
    config = NoiseConfig(burst_probability=0.2, burst_steps=(3, 3), offset_m=(0.02, 0.02), turn_rad=(0.1, 0.1))
    bursts = NoiseBursts(config, np.random.default_rng(0))
    action = np.array([0.0, 0, 0, 0, 0, 0, 1.0])
    pushes = np.array([bursts.disturb(action) for _ in range(300)])
    np.testing.assert_array_equal(pushes[:, 6], 1.0)
    lengths = np.linalg.norm(pushes[:, :3], axis=1) * 0.05  # m per step
    # 2 cm over 3 steps, nothing in between
    np.testing.assert_allclose(lengths[lengths > 0], 0.02 / 3)
    np.testing.assert_allclose(np.linalg.norm(pushes[lengths > 0, 3:6], axis=1) * 0.25, 0.1 / 3)
    # a burst of 3 after a mean wait of 5 (the burst's first step included): 3 of every 7 steps
    assert np.mean(lengths > 0) == pytest.approx(3 / 7, abs=0.1)
