"""Noise on chunks: one direction a chunk, as large as the motion, and never on the gripper."""

from dataclasses import replace

import numpy as np
import pytest

from engram.core.errors import InvalidInputError
from engram.core.motion_correction import MotionCorrection
from engram.core.types import CORRECTION, EXPLORED, ActionChunk, ActionSource, Lineage
from engram.learning.experience.eligibility import CORRECTED, why_not
from engram.learning.exploration import Exploration, ExplorationConfig


def chunk(actions, space="ee_delta", step=0):
    return ActionChunk(step * 100_000_000, 1, space, np.array(actions, float), 0.1, 2, "v0")


ROWS = [[0.4, 0, 0, 0, 0, 0, -1.0], [0.0, 0, 0, 0, 0, 0, 1.0]]


def noise(explore, rows=ROWS, step=0):
    return explore.apply(chunk(rows, step=step)).actions - np.array(rows)


def test_a_chunk_gets_one_draw_as_large_as_each_row_moves():
    explore = Exploration()
    moving, still = noise(explore)
    np.testing.assert_allclose(moving[:3] / still[:3], (0.05 + 0.5 * 0.4) / 0.05)
    np.testing.assert_allclose(moving[3:6], still[3:6])  # neither row turns
    assert moving[6] == still[6] == 0.0


def test_a_draw_holds_for_four_steps_also_where_every_step_has_a_chunk_of_its_own():
    explore = Exploration()
    drawn = [noise(explore, step=step)[0, 0] for step in (*range(9), 0)]
    assert len(set(drawn[:4])) == len(set(drawn[4:8])) == 1
    assert len(set(drawn)) == 4  # the clock began anew at last
    seldom = Exploration(ExplorationConfig(hold_steps=4))
    assert len({noise(seldom, step=step)[0, 0] for step in (0, 4, 8)}) == 3  # chunks of four steps


def test_a_draw_for_the_whole_episode_turns_stretches_and_shifts_every_translation_alike():
    explore = Exploration(ExplorationConfig(size=0.2, hold_steps=0))
    explore.begin(7)
    still, along, far, back = noise(explore, [[x, 0, 0, 0.1, 0, 0, 1.0] for x in (0.0, 0.2, 0.4, -0.2)])
    reach = 0.05 + 0.5 * 0.2
    shift = still[:3] / 0.05
    np.testing.assert_allclose(along[:3] + back[:3], 2 * reach * shift)  # what does not turn with the motion
    way = (along[:3] - back[:3]) / 2 / (0.2 / reach) / reach
    np.testing.assert_allclose(far[:3], (0.05 + 0.5 * 0.4) * shift + 0.4 * way, atol=1e-9)
    assert np.abs(way[1:]).min() > 0.0 and not np.any([row[3:] for row in (still, along, far, back)])
    again = [[0.2, 0, 0, 0.1, 0, 0, 1.0]] * 2
    np.testing.assert_array_equal(noise(explore, again, step=50)[1], along)
    explore.begin(8)
    assert not np.allclose(noise(explore, again)[0], along)


def test_its_size_is_the_share_of_the_reach_that_was_asked_for():
    explore = Exploration(ExplorationConfig(size=0.2))
    drawn = np.array([noise(explore, step=4 * i)[0, 0] for i in range(2000)])
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
    assert max(np.abs(explore.apply(chunk(full, step=4 * i)).actions).max() for i in range(20)) <= 1.0


@pytest.mark.parametrize("size", [0.0, 0.5])
def test_without_noise_or_in_another_space_a_chunk_is_left_alone(size):
    given = chunk(ROWS, space="joint_position") if size else chunk(ROWS)
    assert Exploration(ExplorationConfig(size=size)).apply(given) is given


def test_what_is_done_with_noise_or_a_correction_is_marked():
    own, noisy = ActionSource("base", "l"), Exploration(ExplorationConfig(size=0.1))
    assert Exploration(ExplorationConfig(size=0.0)).mark(own) is own
    assert noisy.mark(own) == replace(own, ablation=EXPLORED)
    assert noisy.mark(replace(own, ablation="zeroed")).ablation == "zeroed"  # that is not to be imitated
    noisy.correction = MotionCorrection(scale=0.5)
    assert noisy.mark(own) == replace(own, ablation=CORRECTION)
    lineage = Lineage("r", "a", "n", "base")
    assert why_not([ActionSource("base", lineage.id, EXPLORED)], lineage) == ""
    assert why_not([ActionSource("base", lineage.id, CORRECTION)], lineage) == CORRECTED


def test_a_size_out_of_range_is_refused_by_name():
    with pytest.raises(InvalidInputError, match=r"ExplorationConfig\.size: 2\.0"):
        ExplorationConfig(size=2.0)
