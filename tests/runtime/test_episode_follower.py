"""Episodes of memory follow the status of the task and are told what the actions had read."""

from __future__ import annotations

import numpy as np

from engram.core.types import ActionChunk, EpisodeStatus
from engram.memory.robot_memory import RobotMemory
from engram.runtime.episode_follower import MOST_EPISODES, EpisodeFollower
from tests.memory.scenes import WordEncoder


class Diary(RobotMemory):
    """Writes down what it is told of tasks."""

    def __init__(self) -> None:
        super().__init__(encoder=WordEncoder())
        self.lines: list[tuple] = []

    def begin_episode(self, task, instruction, stamp_ns):
        self.lines.append(("begin", task, instruction, stamp_ns))

    def end_episode(self, task, outcome, stamp_ns, memory_ids=(), policy_version=""):
        self.lines.append(("end", task, outcome, stamp_ns, memory_ids, policy_version))


def status(stamp_ns: int, episode: int, state: str, task: str = "stack", step: int | None = None) -> EpisodeStatus:
    step = stamp_ns if step is None else step
    return EpisodeStatus(stamp_ns, "robot0", episode, task, "stack the cubes", step, state)


def chunk(episode: int, *ids: str) -> ActionChunk:
    return ActionChunk(0, episode, "ee_delta", np.zeros((1, 7)), 0.1, 1, "base-2", ids)


def test_an_episode_begins_once_and_ends_with_what_its_actions_carried():
    diary = Diary()
    follower = EpisodeFollower(diary)
    follower.status(status(0, 0, "idle"))
    follower.chunk(chunk(1, "object_0001"))  # the policy may be faster than the status
    follower.status(status(1, 1, "running"))
    follower.status(status(2, 1, "running"))
    follower.chunk(chunk(1, "object_0002", "object_0001"))
    follower.status(status(3, 1, "succeeded"))
    follower.status(status(3, 1, "succeeded"))
    assert diary.lines == [
        ("begin", "stack", "stack the cubes", 1),
        ("end", "stack", "succeeded", 3, ("object_0001", "object_0002"), "base-2"),
    ]


def test_the_words_of_a_goal_name_its_skill_where_there_is_no_task():
    diary = Diary()
    follower = EpisodeFollower(diary)
    follower.status(status(1, 1, "running", ""))
    follower.status(status(2, 1, "failed", ""))
    assert [line[:2] for line in diary.lines] == [("begin", "stack the cubes"), ("end", "stack the cubes")]


def test_a_chunk_of_the_next_episode_is_told_there():
    diary = Diary()
    follower = EpisodeFollower(diary)
    follower.status(status(1, 1, "running"))
    follower.chunk(chunk(2, "object_0009"))
    follower.status(status(2, 1, "failed"))
    follower.status(status(2, 1, "running"))  # a late one of the episode that is over
    follower.status(status(3, 2, "running"))
    follower.status(status(4, 2, "stopped"))
    assert [line[0] for line in diary.lines] == ["begin", "end", "begin", "end"]
    assert diary.lines[1][4] == () and diary.lines[3][4] == ("object_0009",)


def test_episodes_that_are_counted_anew_after_a_restart_are_episodes():
    diary = Diary()
    follower = EpisodeFollower(diary)
    follower.status(status(5 * 10**9, 1, "running"))
    follower.status(status(9 * 10**9, 1, "failed"))
    follower.status(status(1, 1, "running"))
    assert [line[0] for line in diary.lines] == ["begin", "end", "begin"]


def test_a_new_task_while_one_runs_is_a_new_episode():
    diary = Diary()
    follower = EpisodeFollower(diary)
    follower.status(status(1, 1, "running"))
    follower.status(status(2, 2, "running"))
    assert [line[0] for line in diary.lines] == ["begin", "begin"]


def test_chunks_of_no_episode_are_forgotten_and_those_of_the_running_one_are_not():
    diary = Diary()
    follower = EpisodeFollower(diary)
    follower.status(status(1, 1, "running"))
    follower.chunk(chunk(1, "object_0001"))
    for episode in range(100, 1100):
        follower.chunk(chunk(episode, "object_0002"))
    assert len(follower._read) <= MOST_EPISODES
    follower.status(status(2, 1, "succeeded"))
    assert diary.lines[-1][4] == ("object_0001",)


def test_an_episode_that_has_the_number_of_one_that_its_process_did_not_end_begins_anew():
    diary = Diary()
    follower = EpisodeFollower(diary)
    for stamp_ns, step in ((10, 0), (10, 0), (11, 1), (50, 0), (51, 1)):  # shown again; the sender was killed at 11
        follower.status(status(stamp_ns, 1, "running", step=step))
    assert [line[-1] for line in diary.lines] == [10, 50]
