"""A correction of a policy's motions is applied as it says, and the one that helps is found by trial."""

import numpy as np
import pytest

from engram.core.errors import InvalidInputError
from engram.core.motion_correction import ADDED, REACH_OF_SCALE, REACH_OF_SHIFT, REACH_OF_YAW_RAD, MotionCorrection
from engram.core.types import ActionChunk
from engram.learning.exploration import Exploration, ExplorationConfig
from engram.learning.motion_correction import CorrectionSearch, CorrectionSearchConfig

TURN = float(np.arctan2(0.8, 0.6))
"""A yaw whose cosine is 0.6 and whose sine is 0.8 [rad]."""


def chunk(row, space="ee_delta"):
    return ActionChunk(100, 1, space, np.array([row] * 2, float), 0.1, 2, "v")


def test_a_translation_is_turned_and_scaled_and_nothing_else():
    correction = MotionCorrection(scale=0.5, yaw_rad=TURN)
    done = correction.apply(chunk([0.4, 0.2, -0.6, 0.1, 0.2, 0.3, 1.0]))
    np.testing.assert_allclose(done.actions[1], [0.04, 0.22, -0.3, 0.1, 0.2, 0.3, 1.0], atol=1e-12)
    assert MotionCorrection(scale=4.0).apply(chunk([0.4, -0.4, 0.1, 0, 0, 0, 0])).actions[0, :3].tolist() == [
        1.0,
        -1.0,
        0.4,
    ]
    joints = chunk([0.4, 0.2], "joint_position")
    assert correction.apply(joints) is joints and MotionCorrection().apply(joints) is joints


def test_a_translation_is_shifted_once_it_is_turned_and_scaled():
    correction = MotionCorrection(scale=0.5, yaw_rad=TURN, shift_x=0.1, shift_y=-0.05)
    done = correction.apply(chunk([0.4, 0.2, -0.6, 0.1, 0.2, 0.3, 1.0]))
    np.testing.assert_allclose(done.actions[1], [0.14, 0.17, -0.3, 0.1, 0.2, 0.3, 1.0], atol=1e-12)
    twice = correction.then(MotionCorrection(scale=2.0, yaw_rad=0.2, shift_x=0.03))
    each = MotionCorrection(scale=2.0, yaw_rad=0.2, shift_x=0.03).apply(done)
    np.testing.assert_allclose(twice.apply(chunk([0.4, 0.2, -0.6, 0.1, 0.2, 0.3, 1.0])).actions, each.actions)
    assert str(correction) == "times 0.50, turned by 53 degrees, shifted by +0.10, -0.05"
    assert str(MotionCorrection()) == "as they are"


@pytest.mark.parametrize(
    "wrong",
    [
        *({"scale": 0.0}, {"scale": np.inf}, {"scale": -1.0}, {"scale": 11.0}, {"scale": 0.09}),
        *({"yaw_rad": np.nan}, {"yaw_rad": 3.35}, {"yaw_rad": -1.4}),
        *({"shift_y": np.inf}, {"shift_x": 8.0}, {"shift_y": -0.37}),
    ],
)
def test_a_correction_that_cannot_be_is_refused_by_the_number_and_its_range(wrong):
    (name,) = wrong
    with pytest.raises(InvalidInputError, match=rf"MotionCorrection\.{name}: .*, expected -?[\d.]+ \.\. [\d.]+$"):
        MotionCorrection(**wrong)


def test_however_many_corrections_add_up_to_what_a_correction_may_be():
    for sign in (1, -1):
        one = MotionCorrection(REACH_OF_SCALE**sign, sign * REACH_OF_YAW_RAD, REACH_OF_SHIFT, -REACH_OF_SHIFT)
        added = MotionCorrection()
        for _ in range(10):
            added = added.then(one)
        assert abs(added.yaw_rad) == pytest.approx(ADDED * REACH_OF_YAW_RAD) and abs(added.yaw_rad) < np.pi / 2
        assert added.scale == pytest.approx(REACH_OF_SCALE ** (sign * ADDED))
        assert max(abs(added.shift)) <= ADDED * REACH_OF_SHIFT


def test_what_drives_is_corrected_with_and_without_noise():
    for size in (0.0, 0.1):
        explore = Exploration(ExplorationConfig(size=size))
        explore.begin(3)
        plain = explore.apply(chunk([0.0, 0.0, 0.4, 0, 0, 0, 0]))
        explore.begin(3)
        explore.correction = MotionCorrection(scale=0.5)
        assert explore.apply(chunk([0.0, 0.0, 0.8, 0, 0, 0, 0])).actions == pytest.approx(plain.actions)


def searched(best, width, trials, seed):
    """Return a search after trials on a robot that succeeds most with ``best`` (log of the scale, yaw, shift y)."""
    search, luck, successes = CorrectionSearch(seed=seed), np.random.default_rng(seed), 0
    for _ in range(trials):
        one = correction = search.next()
        off = np.array([np.log(one.scale), one.yaw_rad, one.shift_y, one.shift_x]) - [*best, 0.0]
        success = luck.random() < 0.95 * np.exp(-0.5 * (off**2 / np.square([*width, 0.05])).sum())
        search.tell(correction, float(success))
        successes += success
    return search, successes


@pytest.mark.parametrize("seed", range(3))
def test_the_correction_that_helps_is_found(seed):
    search, successes = searched((0.0, -0.25, 0.0), (0.6, 0.2, 0.05), 80, seed)  # 0.43 without a correction
    assert abs(search.best().yaw_rad + 0.25) < 0.13 and successes > 0.43 * 80
    search, successes = searched((0.0, 0.0, 0.06), (0.6, 0.2, 0.03), 80, seed)  # 0.13, as with a camera that was moved
    assert abs(search.best().shift_y - 0.06) < 0.025 and successes > 0.13 * 80


def test_a_trial_changes_one_number_and_stays_within_reach():
    search, tried = CorrectionSearch(seed=1), []
    for number in range(60):
        tried.append(search.next())
        search.tell(tried[-1], number % 2)
    assert all(1 / 2.2 - 1e-9 <= one.scale <= 2.2 + 1e-9 and abs(one.yaw_rad) <= 0.45 for one in tried)
    changed = [(one.scale != 1.0, one.yaw_rad != 0.0, one.shift_x != 0.0, one.shift_y != 0.0) for one in tried]
    assert all(sum(one) <= 1 for one in changed) and np.array(changed).any(axis=0).all()
    assert all(abs(one.shift).max() <= 0.12 for one in tried)


@pytest.mark.parametrize("seed", range(3))
def test_where_none_is_needed_none_is_taken(seed):
    search, successes = searched((0.0, 0.0, 0.0), (0.3, 0.2, 0.05), 60, seed)
    assert search.best() == MotionCorrection() and successes > 30


def test_the_same_outcomes_give_the_same_trials():
    one, _ = searched((-0.5, 0.0, 0.0), (0.5, 0.3, 0.05), 10, seed=4)
    again, _ = searched((-0.5, 0.0, 0.0), (0.5, 0.3, 0.05), 10, seed=4)
    assert one.next() == again.next() and one.next() == one.next()


def test_a_mean_of_several_episodes_tells_what_each_of_them_does():
    one, mean = CorrectionSearch(seed=3), CorrectionSearch(seed=3)
    for tried, outcomes in ((MotionCorrection(0.5), (1.0, 0.0, 1.0)), (MotionCorrection(), (0.0, 0.5))):
        for outcome in outcomes:
            one.tell(tried, outcome)
        mean.tell(tried, float(np.mean(outcomes)), len(outcomes))
    assert one.trials == mean.trials == 5
    for these, those in zip(one._posterior(), mean._posterior(), strict=True):
        np.testing.assert_allclose(these, those, atol=1e-12)
    with pytest.raises(InvalidInputError, match=r"CorrectionSearch\.tell: times"):
        one.tell(MotionCorrection(), 1.0, 0)


@pytest.mark.parametrize("seed", range(3))
def test_what_was_found_at_another_task_is_soon_tried_and_costs_nothing_where_it_does_not_help(seed):
    """Half of the motion is what another task needed: 0.9 of its episodes succeeded with it, and 0.4 without."""
    half = MotionCorrection(CorrectionSearch().correction(3).scale)
    for helps in (True, False):
        search, luck = CorrectionSearch(seed=seed), np.random.default_rng(seed)
        search.tell(half, 0.9, 30, task="stack")
        search.tell(MotionCorrection(), 0.4, 30, task="stack")
        tried = []
        for number in range(40):
            tried.append(search.next() if number >= 8 else MotionCorrection())
            near = abs(np.log(tried[-1].scale / half.scale)) < 0.3
            good = near if helps else tried[-1] == MotionCorrection()
            search.tell(tried[-1], float(luck.random() < (0.9 if good else 0.3)))
        assert search.trials == 40 and any(abs(np.log(one.scale / half.scale)) < 0.3 for one in tried[8:16])
        found = search.best()
        assert found.scale < 0.8 if helps else found == MotionCorrection(), (helps, found)


def test_nothing_was_tried_and_nothing_is_taken():
    assert CorrectionSearch().best() == MotionCorrection()


@pytest.mark.parametrize("outcome", [np.nan, -0.1, 1.1])
def test_an_outcome_that_is_none_is_refused(outcome):
    with pytest.raises(InvalidInputError, match=r"CorrectionSearch\.tell: outcome"):
        CorrectionSearch().tell(MotionCorrection(), outcome)


@pytest.mark.parametrize(
    "how",
    [
        *({"steps": 4}, {"steps": 1}, {"reach_of_scale": 1.0}, {"reach_of_scale": np.nan}, {"reach_of_scale": 20.0}),
        *({"reach_of_yaw_rad": 2.0}, {"reach_of_shift": 0.0}, {"reach_of_shift": 1.0}),
    ],
)
def test_a_search_that_cannot_be_is_refused_by_name(how):
    with pytest.raises(InvalidInputError, match=rf"CorrectionSearchConfig\.{next(iter(how))}"):
        CorrectionSearchConfig(**how)
