"""A policy process that is restarted in mid-episode knows what the one before it knew."""

import numpy as np
import pytest
from safetensors import SafetensorError

from engram.core.contracts import StatefulPolicy
from engram.core.errors import InvalidInputError
from engram.runtime.episode_keeper import EpisodeKeeper
from engram.runtime.policy_runner import PolicyRunner
from tests.learning.transitions import LINEAGE
from tests.runtime.test_loop import GoRight

from .test_policy_runner import Loadable, step


class Counting(Loadable, StatefulPolicy):
    """Counts the steps of its episode, which 3 of every 4 rows of its chunks last."""

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


def test_new_weights_wait_for_the_next_episode_while_something_is_remembered(restart):
    runner = restart()
    runner.step(step(0))
    runner.offer_weights("w", "v1", LINEAGE)
    for i in (3, 6):
        assert runner.step(step(i)) is not None
        assert runner.policy.version == "v0"
    runner.step(step(9, episode=2))
    assert (runner.policy.version, runner.policy.count) == ("v1", 1)


def test_a_new_process_takes_the_weights_that_wrote_what_it_remembers_in_mid_episode(restart):
    first = restart()
    first.offer_weights("w", "v1", LINEAGE)
    for i in range(5):
        first.step(step(i))
    second = restart()
    second.step(step(5))
    assert second.policy.version == "v0"  # as it was started
    for version, drives in (("v2", "v0"), ("v1", "v1")):
        second.offer_weights("w", version, LINEAGE)
        second.step(step(8 if drives == "v0" else 11))
        assert second.policy.version == drives
    assert second.policy.count == 8


def test_a_disk_that_takes_no_more_stops_no_policy(restart, monkeypatch):
    runner = restart()
    runner.step(step(0))

    def full(*_, **__):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("engram.runtime.episode_keeper.save_file", full)
    assert runner.step(step(3)) is not None
    assert "the memory of this episode would not survive a restart: Error while" in restart.problems[-1]


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


def test_a_bit_that_the_disk_has_changed_is_found(restart):
    restart().step(step(0))
    whole = restart.file.read_bytes()
    for place in range(len(whole) - 8, len(whole)):  # the count itself
        restart.file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        runner = restart()
        runner.step(step(1))
        assert runner.policy.count == 1
    assert len(restart.problems) == 8 and "its checksum does not fit" in restart.problems[0]


def test_a_folder_that_cannot_be_written_is_named_and_the_robot_goes_on(tmp_path):
    problems = []
    (tmp_path / "file").write_text("")
    runner = PolicyRunner(Counting(), keeper=EpisodeKeeper(tmp_path / "file", problems.append))
    assert runner.step(step(0)) is not None
    assert "would not survive a restart" in problems[0]


def test_a_policy_without_memory_leaves_no_file(tmp_path):
    PolicyRunner(GoRight(), keeper=EpisodeKeeper(tmp_path)).step(step(0))
    assert not list(tmp_path.iterdir())
