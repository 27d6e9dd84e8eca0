"""Answers that come late, in a world small enough to follow by hand."""

import numpy as np
import pytest

from engram.benchmarks.lateness import LateRuntime
from engram.core.errors import InvalidInputError
from engram.core.pipeline import CommandPipeline
from engram.core.types import ActionChunk
from tests.core.gantry import GANTRY, GantryKinematics
from tests.runtime.test_loop import MAX_STEPS, GantryWorld, GoRight

HELD = None


class Numbered(GoRight):
    """Answers with rows that tell at which step of the episode it was asked, and which of six rows they are."""

    def reset(self, instruction, episode=0, seed=0):
        super().reset(instruction, episode, seed)
        self.seen.clear()

    def act(self):
        actions = np.zeros((6, 7))
        actions[:, 6] = (10 * (len(self.seen) - 1) + np.arange(6)) / 1000  # the gripper's, which nothing is added to
        return ActionChunk(self.seen[-1], self.episode, "ee_delta", actions, 0.1, 3, "v0")


def executed(delay: int, episodes: int = 1) -> list[tuple[int, int] | None]:
    """Return for each step of the last episode which row of the answer to which step was executed; None = held."""
    pipeline = CommandPipeline(GantryKinematics(), GANTRY, lockstep=False)
    runtime = LateRuntime(GantryWorld(), Numbered(), pipeline, delay=delay)
    rows: list[tuple[int, int] | None] = []
    picked = pipeline.executor.action

    def noted(stamp_ns):
        action = picked(stamp_ns)
        rows.append(None if action is None else divmod(round(1000 * action[6]), 10))
        return action

    pipeline.executor.action = noted
    for seed in range(episodes):
        rows.clear()
        runtime.run_episode("reach", seed)
    assert len(rows) == MAX_STEPS
    return rows


def test_an_answer_in_time_is_executed_from_its_first_row():
    assert executed(0)[:7] == [(0, 0), (0, 1), (0, 2), (3, 0), (3, 1), (3, 2), (6, 0)]


def test_old_rows_bridge_a_late_answer_which_begins_with_its_row_of_now():
    assert executed(2)[:9] == [HELD, HELD, (0, 2), (0, 3), (0, 4), (3, 2), (3, 3), (3, 4), (6, 2)]


def test_the_robot_holds_where_the_running_chunk_ends_before_the_next_one_comes():
    assert executed(5)[:12] == [HELD] * 5 + [(0, 5)] + [HELD] * 4 + [(5, 5), HELD]


def test_an_answer_that_was_on_its_way_ends_with_its_episode():
    assert executed(4, episodes=2) == executed(4)


def test_answers_of_which_nothing_would_be_left_are_refused():
    with pytest.raises(InvalidInputError, match="delay: 6, none of the 6 rows of v0 would be executed"):
        executed(6)


def test_a_pipeline_that_waits_and_a_negative_delay_are_refused():
    world, policy, kinematics = GantryWorld(), Numbered(), GantryKinematics()
    with pytest.raises(InvalidInputError, match="lock-step"):
        LateRuntime(world, policy, CommandPipeline(kinematics, GANTRY), delay=1)
    with pytest.raises(InvalidInputError, match="delay: -1"):
        LateRuntime(world, policy, CommandPipeline(kinematics, GANTRY, lockstep=False), delay=-1)
