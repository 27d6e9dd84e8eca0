"""Noise on chunks: one direction a chunk, as large as the motion, and never on the gripper."""

import numpy as np
import pytest

from engram.core.errors import InvalidInputError
from engram.core.types import ActionChunk
from engram.learning.exploration import Exploration, ExplorationConfig


def chunk(actions, space="ee_delta"):
    return ActionChunk(0, 1, space, np.array(actions, float), 0.1, 2, "v0")


ROWS = [[0.4, 0, 0, 0, 0, 0, -1.0], [0.0, 0, 0, 0, 0, 0, 1.0]]


def noise(explore, rows=ROWS):
    return explore.apply(chunk(rows)).actions - np.array(rows)


def test_a_chunk_gets_one_draw_as_large_as_each_row_moves():
    explore = Exploration()
    moving, still = noise(explore)
    np.testing.assert_allclose(moving[:3] / still[:3], (0.05 + 0.5 * 0.4) / 0.05)
    np.testing.assert_allclose(moving[3:6], still[3:6])  # neither row turns
    assert moving[6] == still[6] == 0.0
    assert not np.allclose(noise(explore), [moving, still])  # the next chunk draws anew


def test_its_size_is_the_share_of_the_reach_that_was_asked_for():
    explore = Exploration(ExplorationConfig(size=0.2))
    drawn = np.array([noise(explore)[0, 0] for _ in range(2000)])
    assert drawn.std() == pytest.approx(0.2 * 0.25, rel=0.06) and abs(drawn.mean()) < 0.005


def test_an_episode_begins_its_noise_anew_and_actions_stay_within_their_bounds():
    explore = Exploration(ExplorationConfig(size=1.0), seed=3)
    explore.begin(5)
    first = noise(explore)
    explore.begin(5)
    np.testing.assert_array_equal(noise(explore), first)
    explore.begin(6)
    assert not np.allclose(noise(explore), first)
    full = [[1.0, -1.0, 1.0, 1.0, -1.0, 1.0, 1.0]] * 2
    assert max(np.abs(explore.apply(chunk(full)).actions).max() for _ in range(20)) <= 1.0


@pytest.mark.parametrize("size", [0.0, 0.5])
def test_without_noise_or_in_another_space_a_chunk_is_left_alone(size):
    given = chunk(ROWS, space="joint_position") if size else chunk(ROWS)
    assert Exploration(ExplorationConfig(size=size)).apply(given) is given


def test_a_size_out_of_range_is_refused_by_name():
    with pytest.raises(InvalidInputError, match=r"ExplorationConfig\.size: 2\.0"):
        ExplorationConfig(size=2.0)
