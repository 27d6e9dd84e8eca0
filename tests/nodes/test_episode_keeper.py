"""A policy process that is restarted in mid-episode knows what the one before it knew."""

import numpy as np
import pytest

from engram.core.contracts import Remembering
from engram.core.errors import InvalidInputError
from engram.nodes.episode_keeper import EpisodeKeeper
from engram.nodes.policy_runner import PolicyRunner
from tests.sim.test_runtime import GoRight

from .test_policy_runner import step


class Counting(GoRight, Remembering):
    """GoRight that counts the steps of its episode."""

    count = 0

    def reset(self, instruction, episode=0, seed=0):
        super().reset(instruction, episode, seed)
        self.count = 0

    def observe(self, observation, memory=None):
        super().observe(observation, memory)
        self.count += 1

    def memory_state(self):
        return {"count": np.array([self.count])}

    def restore_memory(self, arrays):
        if arrays.keys() != {"count"}:
            raise InvalidInputError(f"arrays {sorted(arrays)}, expected ['count']")
        self.count = int(arrays["count"][0])


@pytest.fixture
def restart(tmp_path):
    problems = []

    def start():
        return PolicyRunner(Counting(), keeper=EpisodeKeeper(tmp_path, problems.append))

    start.problems = problems
    start.file = tmp_path / "episode.safetensors"
    return start


def test_a_new_process_goes_on_in_the_same_episode(restart):
    first = restart()
    for i in range(5):
        first.step(step(i))
    second = restart()
    second.step(step(5))
    assert second.policy.count == 6


@pytest.mark.parametrize(
    "after",
    [step(5, episode=2), step(5, words="stop"), step(3), step(5 + 301)],
    ids=["another episode", "other words", "time went back", "half a minute later"],
)
def test_another_episode_begins_anew(restart, after):
    first = restart()
    for i in range(5):
        first.step(step(i))
    second = restart()
    second.step(after)
    assert second.policy.count == 1


def test_within_one_process_an_episode_that_begins_again_begins_anew(restart):
    runner = restart()
    for i in (0, 1, 2, 0):
        runner.step(step(i))
    assert runner.policy.count == 1


def test_a_damaged_file_is_named_and_the_episode_goes_on_without_it(restart):
    restart().step(step(0))
    restart.file.write_bytes(b"not a safetensors file")
    runner = restart()
    runner.step(step(1))
    assert runner.policy.count == 1
    assert "episode.safetensors: the memory of this episode is lost" in restart.problems[0]


def test_a_folder_that_cannot_be_written_is_named_and_the_robot_goes_on(tmp_path):
    problems = []
    (tmp_path / "file").write_text("")
    runner = PolicyRunner(Counting(), keeper=EpisodeKeeper(tmp_path / "file", problems.append))
    assert runner.step(step(0)) is not None
    assert "would not survive a restart" in problems[0]


def test_a_policy_without_memory_leaves_no_file(tmp_path):
    PolicyRunner(GoRight(), keeper=EpisodeKeeper(tmp_path)).step(step(0))
    assert not list(tmp_path.iterdir())
