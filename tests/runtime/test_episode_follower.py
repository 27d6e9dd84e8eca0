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

    def begin_episode(self, task, instruction, stamp_ns, under_way=False):
        self.under_way = under_way
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


def test_an_idle_robot_has_abandoned_what_ran():
    """The policy node was killed and is back."""
    diary = Diary()
    follower = EpisodeFollower(diary)
    assert not follower.status(status(1, 0, "idle"))
    follower.status(status(10, 1, "running", step=0))
    follower.chunk(chunk(1, "object_0001"))
    assert follower.status(status(90, 0, "idle", ""))
    assert not follower.status(status(91, 0, "idle", ""))
    assert diary.lines[1:] == [("end", "stack", "abandoned", 90, ("object_0001",), "base-2")]
    follower.status(status(100, 1, "running", step=0))
    follower.status(status(110, 1, "succeeded", step=7))
    assert [line[-1] if line[0] == "begin" else line[2] for line in diary.lines[2:]] == [100, "succeeded"]


def test_a_simulation_that_is_back_abandons_the_episode_when_it_was_last_heard_of():
    diary = Diary()
    follower = EpisodeFollower(diary)
    for stamp_ns, step, state in ((10, 0, "running"), (80, 7, "running"), (0, 0, "idle"), (1, 0, "running")):
        follower.status(status(stamp_ns, 1, state, step=step))
    assert [line[:4] for line in diary.lines] == [
        ("begin", "stack", "stack the cubes", 10),
        ("end", "stack", "abandoned", 80),
        ("begin", "stack", "stack the cubes", 1),
    ]


def test_only_the_first_status_of_all_may_be_of_an_episode_of_before():
    for before, step, under_way in (([], 7, True), ([], 0, False), ([status(1, 0, "idle")], 7, False)):
        diary = Diary()
        follower = EpisodeFollower(diary)
        for one in before:
            follower.status(one)
        follower.status(status(50, 1, "running", step=step))
        assert diary.under_way is under_way
