"""A robot with other joints and cameras than the Panda: recorded, trained on, and driven by what was trained."""

import numpy as np
import pytest

from engram.core.pipeline import CommandPipeline
from engram.core.registry import make_robot
from engram.policies import load_policy
from engram.policies.training.train import main
from engram.policies.training.train_config import TrainConfig
from engram.runtime.loop import Runtime
from engram.runtime.record import RecordConfig, record
from engram.sim.world import MujocoWorld, WorldConfig

from .test_train import MODEL


@pytest.mark.render
def test_the_so101_is_recorded_and_a_policy_trained_on_it_drives_it(tmp_path):
    report = record(
        RecordConfig(
            str(tmp_path / "data"), tasks=("reach",), robot="so101", episodes=2, part_episodes=2, workers=1,
            image_size=64, noise=0.0,
        )
    )  # fmt: skip
    assert (report.episodes, report.dropped) == (2, {"reach": 0})
    main(
        TrainConfig(
            dataset=str(tmp_path / "data"), out=str(tmp_path / "out"), steps=3, batch_size=4, n_action_steps=2,
            image_size=32, model=MODEL, log_steps=2,
        )
    )  # fmt: skip
    robot = make_robot("so101")
    policy = load_policy(tmp_path / "out" / "policy", robot=robot)
    assert policy.cameras == ("front", "wrist")
    world = MujocoWorld(WorldConfig(image_size=64), robot)
    runtime = Runtime(world, policy, CommandPipeline(world.kinematics, robot))
    result = runtime.run_episode("reach", 1)
    assert result.commands.shape[1] == 6
    assert result.commands[:, :5].std() > 0 or result.steps == 1
    low, high = np.array(robot.position_min), np.array(robot.position_max)
    assert (result.commands[:, :5] >= low).all() and (result.commands[:, :5] <= high).all()
    world.close()
