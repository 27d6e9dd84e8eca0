"""Value of a look, worked out by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from engram.memory.advice import AdviceConfig, Option, advise, search_order

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


def test_no_order_of_few_places_is_better_on_average():
    draw = np.random.default_rng(3)
    for _ in range(20):
        places, p = draw.uniform(0, 10, (5, 2)), draw.dirichlet(np.ones(5))
        ways = np.linalg.norm(np.vstack([np.zeros(2), places])[:, None] - places, axis=2)

        def expected(order, p=p, ways=ways) -> float:
            way = found = 0.0
            for at, to in zip((0, *(i + 1 for i in order)), order, strict=False):
                way, found = way + (1 - found) * (ways[at, to] + 2.0), found + p[to]
            return way

        best = min(expected(order) for order in itertools.permutations(range(5)))
        assert expected(search_order(p, ways, 2.0)) <= 1.001 * best


def test_who_is_sure_is_told_the_way_to_the_nearest_of_two_all_the_same():
    advice = advise([Option(HALL, "hall", 0.97), Option(KITCHEN, "kitchen", 0.95)], ROBOT)
    assert not advice.look
    np.testing.assert_array_equal(advice.route[0], KITCHEN)
    assert sum(advice.chances) == pytest.approx(1.0)
