"""The Python blocks of README and docs run as they are written, with small sizes, in an empty folder."""

import time

import numpy as np
import pytest

from engram.memory import DetectedObject, Pose, RobotMemory, SceneObservation
from tests.docs.pages import PAGES, REPOSITORY, name, python_code

HOUR_NS = 3600 * 10**9


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """An empty current folder and a home in which a robot has seen a red cup for a while."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(REPOSITORY))  # examples/
    with RobotMemory.open("~/robot1/memory") as memory:
        start = time.time_ns() - 36 * HOUR_NS
        for second in range(8):
            cup = DetectedObject("red cup", Pose(np.array([0.4, 0.1, 0.02])))
            memory.update(SceneObservation(start + second * 10**9, objects=(cup,)))


@pytest.mark.render
@pytest.mark.parametrize("page", [page for page in PAGES if python_code(page)], ids=name)
def test_the_page_runs(page, elsewhere):
    exec(compile(python_code(page), name(page), "exec"), {"__name__": "page"})
