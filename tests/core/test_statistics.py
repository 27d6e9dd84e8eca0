"""Wilson's interval against numbers computed by hand and from the literature."""

import pytest

from engram.core.errors import InvalidInputError
from engram.core.statistics import mean_rate, wilson


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # n = 10, z^2 = 3.8415: centre (0.8 + 0.19207) / 1.38415 = 0.71674, half 0.31360 / 1.38415 = 0.22657
        (8, 10, 0.4902, 0.9433),
        (0, 10, 0.0, 0.2775),  # z^2 / (n + z^2) = 3.8415 / 13.8415
        (100, 100, 0.9630, 1.0),  # n / (n + z^2) = 100 / 103.8415
        (50, 100, 0.4038, 0.5962),
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, Statistics in Medicine 17:857, table I
    ],
)
def test_wilson_against_hand_computed(successes: int, n: int, low: float, high: float) -> None:
    rate = wilson(successes, n)
    assert rate.rate == successes / n
    assert rate.low == pytest.approx(low, abs=6e-5)
    assert rate.high == pytest.approx(high, abs=6e-5)


def test_wilson_mirrors_success_and_failure() -> None:
    for successes in range(21):
        one, other = wilson(successes, 20), wilson(20 - successes, 20)
        assert one.low == pytest.approx(1.0 - other.high)


@pytest.mark.parametrize(("successes", "n"), [(1, 0), (-1, 5), (6, 5)])
def test_wilson_refuses_what_is_no_rate(successes: int, n: int) -> None:
    with pytest.raises(InvalidInputError, match="expected 0 <= successes <= n"):
        wilson(successes, n)


def test_mean_of_equal_rates_has_half_the_width_for_four() -> None:
    one = wilson(50, 100)
    mean = mean_rate([one] * 4)
    assert mean.rate == 0.5
    assert mean.n == 400
    assert mean.high - mean.rate == pytest.approx((one.high - one.rate) / 2)
    assert mean.rate - mean.low == pytest.approx((one.rate - one.low) / 2)


def test_mean_counts_tasks_alike() -> None:
    assert mean_rate([wilson(10, 10), wilson(0, 90)]).rate == 0.5


def test_mean_of_nothing_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="no rates"):
        mean_rate([])
