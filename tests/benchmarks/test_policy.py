"""What the policy's benchmark works out of its times."""

import pytest

from engram.benchmarks.policy import Contender, share_of_a_control_step


def test_the_steps_between_two_answers_count_as_memorys():
    ours, bank, looking = (
        Contender(name, "", lambda: None, [took]) for name, took in zip("abc", (8, 12, 5), strict=True)
    )
    seconds = ((12 - 8) + 3 * 5) / 4  # of four control steps one decides
    assert share_of_a_control_step(ours, bank, looking)[0] == pytest.approx(seconds / 0.1)
