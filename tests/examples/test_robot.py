"""examples/robot.py in the experts' evaluation, in Gymnasium, in a recording, and from another folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import engram.sim  # noqa: F401  # registers the environments
from engram.core.registry import make_kinematics, make_robot
from engram.runtime.record import RecordConfig, record
from engram.validation.evaluation import evaluate_experts
from engram.viewer.robot_shapes import RobotShapes
from examples.robot import GANTRY

ROBOT = "examples.robot:GANTRY"
EXAMPLE = Path(__file__).parents[2] / "examples" / "robot.py"
TASKS = ("reach", "push_to_mark", "pick_place")


def test_its_tool_is_where_its_joints_say():
    place = make_kinematics(GANTRY).forward(np.array([0.5, -0.1, 0.2])).position
    np.testing.assert_allclose(place, [0.5, -0.1, 0.2], atol=1e-9)


def test_the_experts_reach_push_and_pick_with_it():
    report = evaluate_experts(TASKS, episodes=3, robot=make_robot(ROBOT), progress=False)
    assert report.mean.successes == 9, report.failures


def test_gymnasium_takes_it_by_name():
    env = gym.make("engram/Reach-v0", robot=ROBOT, obs_type="state")
    observation, _ = env.reset(seed=0)
    assert observation["agent_pos"].shape == (11,)
    env.close()


def test_the_page_draws_every_part_of_it():
    names = {shape.name.rsplit("_", 1)[0] for shape in RobotShapes(GANTRY).shapes()}
    assert names == {"hand", "left", "right"}


@pytest.mark.render
def test_record_writes_its_joints_and_cameras(tmp_path):
    config = RecordConfig(
        str(tmp_path / "gantry"), tasks=("reach",), robot=ROBOT, episodes=1, part_episodes=1, workers=1, image_size=32
    )
    assert record(config).episodes == 1
    from lerobot.datasets.lerobot_dataset import LeRobotDatasetMetadata

    meta = LeRobotDatasetMetadata(config.repo_id, root=config.root)
    assert (meta.robot_type, meta.camera_keys) == ("gantry", ["observation.images.front"])
    assert meta.features["observation.state"]["names"][-3:] == ["x", "y", "z"]


@pytest.mark.slow
def test_it_works_from_a_file_beside_the_command(tmp_path):
    shutil.copy(EXAMPLE, tmp_path / "my_robot.py")
    command = [sys.executable, "-m", "engram.app.cli", "eval", "experts", "--robot", "my_robot:GANTRY"]
    environment = {**os.environ, "PYTHONPATH": "", "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [*command, "--tasks", "reach", "--episodes", "2"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert '"successes": 2' in done.stdout
