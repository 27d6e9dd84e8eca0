"""examples/task.py through Gymnasium, recording, evaluation, LeRobot's configuration, the page and a node."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import engram.sim  # noqa: F401  # registers the environments
from engram.core.dataset_check import EPISODE_LOG
from engram.core.errors import InvalidInputError, UnknownNameError
from engram.runtime.record import RecordConfig, record
from engram.sim.experts import make_expert
from engram.sim.tasks import get_task, is_task, task_for
from engram.validation.evaluation import evaluate_experts, swappable

TASK = "examples.task:LiftCube"
EXAMPLE = Path(__file__).parents[2] / "examples" / "task.py"


def test_the_expert_lifts_the_cube_in_gymnasium_and_the_wrong_one_does_not_count():
    env = gym.make("engram/Task-v0", task=TASK, obs_type="state")
    _, info = env.reset(seed=3, options={"instruction": "lift the red cube"})
    assert info["task"] == TASK
    world = env.unwrapped.world
    task, expert, terminated, steps = world.task, make_expert(TASK, world), False, 0
    other = next(body for body in task.colored if body != task.targets["color"])
    assert task.colors[task.targets["color"]] == "red"
    while not terminated and steps < task.max_steps:
        assert world.oracle_pose(other).position[2] < 0.10
        _, reward, terminated, _, _ = env.step(expert.act().astype(np.float32))
        steps += 1
    assert terminated and reward == 1.0
    assert world.oracle_pose(task.targets["color"]).position[2] > 0.10
    env.close()


def test_the_expert_succeeds_on_every_seed():
    report = evaluate_experts((TASK,), episodes=5, progress=False)
    assert report.per_task[TASK].successes == 5


@pytest.mark.render
def test_record_writes_a_dataset_of_it(tmp_path):
    config = RecordConfig(
        str(tmp_path / "lift"), tasks=(TASK,), episodes=1, part_episodes=1, workers=1, image_size=32, noise=0.0
    )
    report = record(config)
    assert (report.episodes, report.dropped) == (1, {TASK: 0})
    (log,) = [json.loads(line) for line in (tmp_path / "lift" / EPISODE_LOG).read_text().splitlines()]
    assert log["task"] == TASK


@pytest.mark.slow
@pytest.mark.render
@pytest.mark.timeout(600)
def test_a_file_beside_the_command_is_found_by_its_recording_workers(tmp_path):
    shutil.copy(EXAMPLE, tmp_path / "my_task.py")
    command = [sys.executable, "-m", "engram.app.cli", "record", "--root", "lift", "--tasks", "my_task:LiftCube"]
    size = ["--episodes", "2", "--part-episodes", "1", "--workers", "2", "--image-size", "32", "--noise", "0"]
    environment = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [*command, *size], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=550, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["episodes"], report["dropped"]) == (2, {"my_task:LiftCube": 0})


def test_its_words_are_understood_where_tasks_are_chosen_by_words():
    assert task_for("Lift the blue cube.", (TASK,)) == TASK
    assert task_for("raise the green block", ("", "reach", TASK)) == TASK
    assert task_for("open the drawer", (TASK,)) == "open_drawer"
    with pytest.raises(InvalidInputError, match="for example: lift the red cube; "):
        task_for("make coffee", (TASK,))
    with pytest.raises(InvalidInputError, match="no task fits"):
        task_for("lift the blue cube")


def test_lerobots_environment_takes_it():
    from engram.sim.lerobot_env import EngramEnvConfig

    config = EngramEnvConfig(task=TASK)
    assert config.gym_id == "engram/Task-v0"
    assert config.gym_kwargs["task"] == TASK
    with pytest.raises(InvalidInputError, match=r"no module 'examples\.tusk'"):
        EngramEnvConfig(task="examples.tusk:LiftCube")


def test_held_out_words_and_swapped_words_work_as_for_shipped_tasks():
    assert swappable(TASK)
    assert is_task(TASK) and not is_task("examples.task:Nothing")
    task = get_task(TASK)
    assert task.name == TASK
    with pytest.raises(UnknownNameError, match="'LiftCub'; did you mean 'LiftCube'"):
        get_task("examples.task:LiftCub")
