"""A chunk learns that rest comes after an episode's last motion, and nothing from steps at which an arm was held."""

import numpy as np

from engram.core.chunk_rows import chunk_rows, ends

MOTION = np.array([0, 0, 1, 2, 0, 3, 0, 0, 4, 5, 0, 0], np.float32)  # two episodes: of eight steps, and of four
LAST = np.array([7] * 8 + [11] * 4)
IDLE = MOTION == 0
ACTION = np.stack([MOTION, np.arange(12) / 100], axis=1)  # one motion, and the gripper


def rows_of(steps: list[int], horizon: int) -> tuple[np.ndarray, np.ndarray]:
    return chunk_rows(ACTION, IDLE, LAST, ends(IDLE, LAST), np.array(steps), horizon)


def test_the_end_of_an_episode_is_its_last_motion():
    assert ends(IDLE, LAST).tolist() == [5] * 8 + [9] * 4
    assert ends(np.ones(3, bool), np.array([2, 2, 2])).tolist() == [-1] * 3


def test_after_the_last_motion_it_rests_and_that_is_learnt():
    action, unlearnt = rows_of([3, 9], 6)
    assert action[..., 0].tolist() == [[2, 0, 3, 0, 0, 0], [5, 0, 0, 0, 0, 0]]
    np.testing.assert_allclose(
        action[..., 1], [[0.03, 0.04, 0.05, 0.06, 0.07, 0.07], [0.09, 0.1, 0.11, 0.11, 0.11, 0.11]]
    )
    assert unlearnt.tolist() == [[False, True, False, False, False, False], [False] * 6]  # held in between


def test_nothing_is_learnt_where_an_arm_is_held_or_all_is_over():
    _, unlearnt = rows_of([0, 6, 10], 3)
    assert unlearnt.tolist() == [[True, True, False], [True] * 3, [True] * 3]
    steps = np.arange(2)
    action, unlearnt = chunk_rows(
        np.zeros((2, 2), np.float32), np.ones(2, bool), np.ones(2, int), -np.ones(2, int), steps, 3
    )
    assert not action.any() and unlearnt.all()


def test_what_was_recorded_is_left_as_it_was():
    before = ACTION.copy()
    rows_of([3, 9], 6)
    np.testing.assert_array_equal(ACTION, before)
