"""A test of a mean that may be stopped at any time: by hand, and as a law over many runs."""

import math

import numpy as np
import pytest

from engram.core.betting import SHARES, WEIGHTS, MeanTest
from engram.core.errors import InvalidInputError


def test_wealth_by_hand() -> None:
    test = MeanTest(0.5)
    test.add(0.5)
    test.add(-0.5)
    wealth = sum(w * (1 + s) * (1 - s) for w, s in zip(WEIGHTS, SHARES, strict=True))  # a bet is its share / 0.5
    assert test.log_wealth == pytest.approx(math.log(wealth))
    assert test.largest == pytest.approx(math.log(sum(w * (1 + s) for w, s in zip(WEIGHTS, SHARES, strict=True))))
    assert sum(WEIGHTS) == pytest.approx(1.0)


def test_what_is_never_lost_is_shown_soon_and_what_is_only_lost_never() -> None:
    won, lost = MeanTest(1.0), MeanTest(1.0)
    for _ in range(20):
        won.add(1.0)
        lost.add(-1.0)
    assert won.shown(0.001)
    assert not lost.shown(0.999)


def test_a_mean_of_zero_is_hardly_ever_taken_for_more() -> None:
    """At most 5 % of 400 runs of 500 looks each may be wrong: that is 20, and 33 with a probability below 0.002."""
    rng, wrong = np.random.default_rng(0), 0
    for numbers in rng.choice([-0.2, 0.8], p=[0.8, 0.2], size=(400, 500)):
        test = MeanTest(0.2)
        for number in numbers:
            test.add(float(number))
        wrong += test.shown(0.05)
    assert wrong <= 33


@pytest.mark.parametrize("number", [math.nan, math.inf, -1.1])
def test_a_number_that_is_none_changes_nothing(number) -> None:
    test = MeanTest(1.0)
    test.add(0.5)
    before = test.log_wealth
    with pytest.raises(InvalidInputError, match=r"expected a finite number of at least -1\.0"):
        test.add(number)
    assert (test.log_wealth, test.n) == (before, 1)


@pytest.mark.parametrize("most_lost", [0.0, -1.0, math.nan])
def test_there_has_to_be_something_to_lose(most_lost) -> None:
    with pytest.raises(InvalidInputError, match=r"MeanTest\.most_lost"):
        MeanTest(most_lost)
