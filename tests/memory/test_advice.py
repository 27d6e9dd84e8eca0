"""Value of a look, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from engram.memory.advice import AdviceConfig, Option, advise

ROBOT = np.zeros(3)
KITCHEN, HALL = np.array([3.0, 0, 0]), np.array([0.0, 8.0, 0])


def test_a_look_is_worth_the_second_best_guess_if_it_is_at_the_best_place():
    """p = 0.6, 0.3: seeing the kitchen settles it, gain 0.6 + 0.3 - 0.6 = 0.3 = 6 m of 20, less 3 m of way."""
    advice = advise([Option(KITCHEN, "kitchen", 0.6), Option(HALL, "hall", 0.3)], ROBOT)
    assert advice.look and advice.label == "kitchen"
    assert advice.value_m == pytest.approx(0.3 * 20 - 3)
    assert (advice.cost_m, advice.probability) == (3.0, 0.6)
    np.testing.assert_array_equal(advice.place, KITCHEN)


def test_too_far_is_not_worth_it_and_the_answer_says_so():
    advice = advise([Option(KITCHEN, "kitchen", 0.8), Option(HALL, "hall", 0.1)], ROBOT)  # gain 0.1 = 2 m, 3 m away
    assert not advice.look and advice.value_m == pytest.approx(-1.0)
    assert advice.text.startswith("Looking is not worth it: the best place, kitchen")


def test_the_same_guess_is_worth_a_look_from_nearby():
    assert advise([Option(KITCHEN, "kitchen", 0.8), Option(HALL, "hall", 0.1)], KITCHEN).look


def test_who_is_sure_need_not_look():
    advice = advise([Option(KITCHEN, "kitchen", 0.95)], ROBOT)
    assert not advice.look and advice.text.startswith("No look is needed")


def test_nothing_to_go_by_is_said():
    assert "no place" in advise([], ROBOT).text


def test_guesses_of_one_place_add_up_and_more_than_all_is_scaled():
    """Kitchen 0.5 + 0.5, hall 0.8: 1 and 0.8 of 1.8; a look at the kitchen gains 0.8 / 1.8, and so one at the hall."""
    near = KITCHEN + np.array([0.4, 0, 0])
    options = [Option(KITCHEN, "a", 0.5), Option(near, "b", 0.5), Option(HALL, "hall", 0.8)]
    advice = advise(options, ROBOT, AdviceConfig(worth_m=90))
    assert advice.probability == pytest.approx(1 / 1.8)
    assert advice.value_m == pytest.approx(0.8 / 1.8 * 90 - 3)
