"""The Python blocks of README and docs run as they are written, with small sizes, in an empty folder."""

import time
from dataclasses import replace

import numpy as np
import pytest

from engram.core.types import ActionSource
from engram.memory import DetectedObject, Pose, RobotMemory, SceneObservation
from tests.docs.pages import PAGES, REPOSITORY, name, python_code
from tests.learning.transitions import episode

HOUR_NS = 3600 * 10**9
DEMO = "~/.local/share/engram/sim-robot0"
"""The folder of the robot in ``make demo``."""


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """An empty current folder and a home in which the simulated robot has seen a green cube for a while."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(REPOSITORY))  # examples/
    with RobotMemory.open(f"{DEMO}/memory") as memory:
        start = time.time_ns() - 36 * HOUR_NS
        for second in range(8):
            cube = DetectedObject("green cube", Pose(np.array([0.4, 0.1, 0.02])))
            memory.update(SceneObservation(start + second * 10**9, objects=(cube,)))


@pytest.fixture
def experience(elsewhere):
    """Three successful episodes that the shipped policy ``base`` drove, where the learner node keeps them."""
    from engram.learning import ExperienceStore
    from engram.policies import load_policy

    source = ActionSource("base", load_policy("base").lineage.id)
    images = {name: np.full((128, 128, 3), 90, np.uint8) for name in ("front", "wrist")}
    store = ExperienceStore(f"{DEMO}/learner/experience")
    for number in range(3):
        steps = episode(number, steps=20, image_size=128, source=source)
        store.append([replace(step, images=images) for step in steps])
    store.commit()
    store.close()


@pytest.mark.render
@pytest.mark.parametrize("page", [page for page in PAGES if python_code(page)], ids=name)
def test_the_page_runs(page, elsewhere, request):
    if "ExperienceStore(" in python_code(page):
        request.getfixturevalue("experience")
    exec(compile(python_code(page), name(page), "exec"), {"__name__": "page"})
