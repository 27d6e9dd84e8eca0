"""The words for how a goal goes."""

import doctest

from engram.core.types import Verdict
from engram.runtime import goal_words
from engram.runtime.goal_words import Standing, verdict_words


def test_examples_in_docstrings_hold():
    failed, tried = doctest.testmod(goal_words)
    assert tried and not failed


def test_nobody_is_said_to_know_what_nobody_told():
    assert Standing("intervention", version="base-1").words() == "a person drives"  # no weights act
    assert Standing("dancing").words() == "dancing"
    assert verdict_words(Verdict(0, 1, "classifier", "confirmed", 0.953)) == "classifier: reached (confidence 95 %)"
