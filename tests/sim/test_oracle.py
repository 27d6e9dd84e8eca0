"""The state oracle: truth, at the cadence of a policy."""

import numpy as np
import pytest

from engram.core.errors import EngramError, WeightsError
from engram.core.pipeline import CommandPipeline
from engram.runtime.loop import Runtime
from engram.sim.oracle import PrivilegedPolicy
from engram.sim.world import MujocoWorld, WorldConfig
from engram.validation.evaluation import ExpertRunner


@pytest.fixture(scope="module")
def world() -> MujocoWorld:
    return MujocoWorld(WorldConfig(profile="none"))


def runtime(world: MujocoWorld, policy: PrivilegedPolicy) -> Runtime:
    return Runtime(world, policy, CommandPipeline(world.kinematics, world.robot))


@pytest.mark.parametrize(
    "task", ["shell_touch:delay=3,alternatives=4", "put_block_back:delay=0", "stack", "touch_unseen:kinds=2"]
)
def test_whoever_knows_all_loses_nothing_by_deciding_seldom(world: MujocoWorld, task: str) -> None:
    """The world is deterministic: the chunks foreseen in the twin are what the expert does step by step."""
    policy = PrivilegedPolicy(world, execute_steps=4)
    asked = []
    act = policy.act
    policy.act = lambda: asked.append(1) or act()  # type: ignore[method-assign]
    result = runtime(world, policy).run_episode(task, 3)
    np.testing.assert_array_equal(result.commands, ExpertRunner(world)(task, 3).commands)
    assert result.oracle_success
    assert len(asked) == -(-result.steps // 4)


def test_the_moment_of_stop_cube_is_foreseen_by_truth(world: MujocoWorld) -> None:
    """A pass takes 16 steps: who decides every 16th has to plan the press a whole pass ahead."""
    run = runtime(world, PrivilegedPolicy(world, execute_steps=16)).run_episode
    assert all(run("stop_cube:delay=1", seed).oracle_success for seed in range(2))


def test_a_robot_that_went_elsewhere_is_noticed(world: MujocoWorld) -> None:
    policy = PrivilegedPolicy(world)
    observation = world.reset("reach", 0)
    policy.reset(world.instruction, seed=0)
    with pytest.raises(EngramError, match="nothing observed"):
        policy.act()
    policy.observe(observation)
    first = policy.act()
    assert policy.act() is first  # asking again changes nothing
    pipeline = CommandPipeline(world.kinematics, world.robot)
    policy.observe(world.step(pipeline.step_action(observation.joints, -first.actions[0]).command))
    with pytest.raises(EngramError, match="the twin is not where the robot is"):
        policy.act()
    with pytest.raises(WeightsError, match="no weights"):
        policy.load_weights("x", "v")  # type: ignore[arg-type]
