"""The gate's test of one task, alone and beside published tests."""

import sys

import numpy as np
import pytest

from engram.benchmarks.gate_peers import CASES, ERROR, PAIRS, drawn, ours, peers
from engram.benchmarks.report import slug
from engram.core.errors import EngramError
from engram.validation.gate import Gate, GateConfig


def test_the_test_is_that_of_the_gate():
    """A gate of one task shares its error rate among success, progress and safety."""
    gate = Gate(("reach",), GateConfig(false_rejection=3 * ERROR))
    new, old = drawn("30 points worse, same luck", 3)
    took = ours(new, old, 3)
    for mine, theirs in zip(new, old, strict=True):
        gate.add("reach", bool(mine), bool(theirs))
        if gate.tasks["reach"].worse:
            break
    assert took == gate.tasks["reach"].pairs > 0


def test_same_luck_is_the_same_scene():
    new, old = drawn("10 points worse, same luck", 0)
    assert not (new & ~old).any() and (old & ~new).any()
    assert ours(np.ones(PAIRS, bool), np.ones(PAIRS, bool), 0) == 0
    assert len({slug(case) for case in CASES}) == len(CASES)


def test_peers_that_are_not_installed_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sequentialized_barnard_tests", None)
    with pytest.raises(EngramError, match=r"sequentialized-barnard-tests is not installed: make setup"):
        peers()


def test_peers_show_what_is_plain_and_nothing_of_equals():
    for test in peers().values():
        assert 0 < test(np.zeros(PAIRS, bool), np.ones(PAIRS, bool), 0) < 20
        assert test(np.ones(PAIRS, bool), np.zeros(PAIRS, bool), 0) == 0
        assert test(np.ones(PAIRS, bool), np.ones(PAIRS, bool), 0) == 0
