"""A task that ran when the process ended is abandoned, unless somebody tells that it goes on."""

from __future__ import annotations

import pytest

from engram.core.types import EpisodeStatus
from engram.memory.robot_memory import RobotMemory
from engram.runtime.episode_follower import EpisodeFollower
from tests.memory.scenes import WordEncoder, seen, view

SECOND = 10**9
EVENING = 1_700_000_000 * SECOND
MORNING = EVENING + 14 * 3600 * SECOND
WORDS = "open the drawer"
BEGAN, CUT = EVENING + 3 * SECOND, EVENING + 9 * SECOND
"""When the task began; the last frame before the process ended."""


def opened(folder, **how):
    return RobotMemory.open(folder, encoder=WordEncoder(), **how)


def look(memory, stamp_ns, y=0.1, frames=5):
    for k in range(frames):
        memory.update(view([seen("red cup", (0.4, y, 0.02))], stamp_ns + k * SECOND // 5))


@pytest.fixture
def cut(tmp_path):
    """The folder of a memory whose process was killed in mid-task, after a commit."""
    memory = opened(tmp_path / "memory")
    look(memory, EVENING)
    memory.begin_episode(WORDS, WORDS, BEGAN)
    look(memory, CUT, frames=1)
    memory.commit()
    memory.close(commit=False)
    return tmp_path / "memory"


def outcomes(memory):
    return [(one.outcome, one.end_ns) for one in memory.episodic.episodes]


def test_the_next_morning_it_was_abandoned_and_what_a_person_moved_is_none_of_it(cut):
    memory = opened(cut)
    look(memory, MORNING, y=-0.2, frames=20)

    def ask(question):
        return memory.ask(question, now_ns=MORNING + 60 * SECOND, utc_offset_h=0).text

    assert outcomes(memory) == [("abandoned", CUT)]
    assert "was abandoned" in ask("did it work")
    assert "cup" not in ask("what changed during the last task")
    assert "red cup" in ask("what moved after the last task")
    memory.close()
    assert outcomes(opened(cut)) == [("abandoned", CUT)]


def test_it_was_abandoned_also_where_nothing_has_been_seen_since(cut):
    assert "was abandoned" in opened(cut).ask("did it work", now_ns=MORNING).text


def test_who_reads_beside_the_process_that_runs_it_sees_it_run(cut):
    assert [one.outcome for one in opened(cut, read_only=True).episodic.episodes] == ["running"]


@pytest.mark.parametrize(
    ("stamp_ns", "under_way", "goes_on"),
    [
        (BEGAN, False, True),  # on a robot the first status of a goal is kept for who comes late
        (CUT + 20 * SECOND, True, True),  # a simulation tells of each step
        (CUT + 20 * SECOND, False, False),  # the same goal was given anew
        (CUT + 70 * SECOND, True, False),
        (EVENING, True, False),
    ],
)
def test_the_very_same_task_goes_on_and_no_other(cut, stamp_ns, under_way, goes_on):
    for _ in range(2):  # killed twice
        memory = opened(cut)
        look(memory, CUT + 2 * SECOND)
        memory.commit()
        memory.close(commit=False)
    memory = opened(cut)
    memory.begin_episode(WORDS, WORDS, stamp_ns, under_way)
    look(memory, CUT + 30 * SECOND, y=-0.2, frames=10)
    memory.end_episode(WORDS, "succeeded", CUT + 80 * SECOND)
    memory.commit()
    before = [] if goes_on else ["abandoned"]
    assert [one.outcome for one in memory.episodic.episodes] == [*before, "succeeded"]
    assert memory.episodic.events[-1].episode == memory.episodic.episodes[-1].id
    assert memory.episodic.episodes[-1].start_ns == (BEGAN if goes_on else stamp_ns)


def test_a_task_in_other_words_is_another_one(cut):
    memory = opened(cut)
    memory.begin_episode(WORDS, "close the drawer", BEGAN)
    memory.commit()
    assert [one.outcome for one in memory.episodic.episodes] == ["abandoned", "running"]


def test_whoever_began_it_may_end_it_from_another_process(cut):
    memory = opened(cut)
    memory.end_episode(WORDS, "failed", MORNING)
    memory.commit()
    assert outcomes(memory) == [("failed", MORNING)]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (EpisodeStatus(BEGAN, "r", 4, "", WORDS, 0, "running"), ["running"]),
        (EpisodeStatus(CUT + SECOND, "r", 0, "", "", 0, "idle"), ["abandoned"]),
        (EpisodeStatus(CUT + SECOND, "r", 5, "", WORDS, 0, "running"), ["abandoned", "running"]),
        (EpisodeStatus(CUT + SECOND, "r", 4, "", WORDS, 40, "running"), ["running"]),
    ],
)
def test_the_first_status_after_a_start_tells_whether_it_goes_on(cut, status, outcome):
    memory = opened(cut)
    EpisodeFollower(memory).status(status)
    memory.commit()
    assert [one.outcome for one in memory.episodic.episodes] == outcome
