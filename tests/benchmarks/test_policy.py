"""What the policy's benchmark works out of its times."""

import pytest

from engram.benchmarks.policy import Contender, contenders, share_of_a_control_step, share_when_asked


def test_the_steps_between_two_answers_count_as_memorys():
    ours, bank, looking = (
        Contender(name, "", lambda: None, [took]) for name, took in zip("abc", (8, 12, 5), strict=True)
    )
    seconds = ((12 - 8) + 3 * 5) / 4  # of four control steps one decides
    assert share_of_a_control_step(ours, bank, looking)[0] == pytest.approx(seconds / 0.1)


def test_who_is_asked_at_every_step_is_compared_with_who_is_asked_as_often_or_as_a_chunk_lasts():
    ours, bank = (Contender(name, "", lambda: None, [took]) for name, took in zip("ab", (8, 12), strict=True))
    assert share_when_asked(ours, bank)[0] == pytest.approx((12 - 8) / 0.1)
    assert share_when_asked(ours, bank, every=4)[0] == pytest.approx((12 - 8 / 4) / 0.1)


def test_every_contender_runs():
    for contender in contenders():
        contender.turn(1)
        assert len(contender.seconds) == 1 and contender.seconds[0] > 0
