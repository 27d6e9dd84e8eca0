"""The newest goals as a line that another node reads again."""

import pytest

from engram.runtime.curve_note import Went, curve_note, read_curve_note

GOALS = [Went("v1", "0"), Went("v1", "1"), Went("v2", "h"), Went("v1", "1")]


def test_a_line_is_read_as_it_was_written():
    assert curve_note(GOALS) == "v1 01 v2 h v1 1"
    assert read_curve_note(curve_note(GOALS)) == GOALS
    assert read_curve_note(curve_note([Went("a b", "1"), Went("", "0")])) == [Went("ab", "1"), Went("?", "0")]
    assert curve_note(()) == "" and read_curve_note("") == []


@pytest.mark.parametrize("nonsense", ["v1", "v1 2", "v1 01 v2", "<b> <i>"])
def test_nonsense_is_no_goal(nonsense):
    assert read_curve_note(nonsense) == []
