"""When surfaces were looked at, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from engram.memory import coverage as module
from engram.memory.coverage import Coverage, pack

PLACES = np.array([[0.1, 0.1, 0.1], [1.1, 0.1, 0.1], [1.1, 0.1, 0.6]])
"""Three cells of 25 cm."""


@pytest.mark.parametrize("at_once", [0, 200_000])
def test_the_newest_look_of_each_box_is_told_box_by_box_or_all_at_once(monkeypatch, at_once):
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
    coverage = Coverage()
    coverage.restore(dict(zip(pack(PLACES).tolist(), (30, 10, 20), strict=True)))
    low = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [3.0, 0.0, 0.0]])
    high = np.array([[0.2, 0.2, 0.2], [1.2, 0.2, 0.2], [1.2, 0.2, 0.7], [3.2, 0.2, 0.2]])
    np.testing.assert_array_equal(coverage.last_looks(low, high), [30, 10, 20, -1])
    assert [coverage.last_look(a, b) for a, b in zip(low, high, strict=True)] == [30, 10, 20, None]
    np.testing.assert_array_equal(Coverage().last_looks(low, high), [-1] * 4)
