"""The arms of practice with a memory differ in what is withheld, and each cell is told arm by arm."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from engram.benchmarks import memory_practice
from engram.benchmarks.memory_practice import ARMS, CELLS, MemoryPracticeBenchmark, figures, learnt
from engram.core.errors import UnknownNameError
from engram.core.motion_correction import MotionCorrection
from engram.core.statistics import wilson
from engram.learning.algorithms import behavior_cloning
from engram.learning.algorithms.distillation import DistillationConfig, distill_head
from engram.learning.experience.store import ExperienceStore
from tests.learning.test_vla import offered, reach, reading  # noqa: F401 (a fixture)


@pytest.fixture
def practised(tmp_path):
    """Return a folder with an episode that was practised, and one of another goal."""
    for folder, words in (("experience", "touch the red cup"), ("others", "open the drawer")):
        store = ExperienceStore(tmp_path / folder)
        store.append([replace(one, instruction=words) for one in offered(reach(1))])
        store.commit()
        store.close()
    return tmp_path


def test_each_learner_is_conditioned_by_what_is_not_withheld(reading, practised, monkeypatch):  # noqa: F811
    seen = {}

    def distill(network, given, kept, check=lambda: None):
        seen[withheld] = given[0][0].numpy(), kept.numpy()
        return distill_head(network, given, kept, DistillationConfig(updates=2), check)

    monkeypatch.setattr(behavior_cloning, "distill_head", distill)
    for withheld in ("", "scene graph", "episode"):
        assert len(learnt(reading, practised, MotionCorrection(scale=0.5), 0, withheld)) > 1000
    for part in range(2):  # what is practised, and what is kept
        both, graph, episode = (seen[name][part] for name in ("", "scene graph", "episode"))
        assert both.shape == graph.shape == episode.shape == (8, both.shape[1])
        assert np.abs(both - graph).max() > 1e-2 < np.abs(both - episode).max()
    both, graph = seen[""][0], seen["scene graph"][0]
    np.testing.assert_allclose(both[0], graph[0], atol=1e-6)  # at the first step nothing was offered


def test_practices_of_a_cell_are_joined_arm_by_arm():
    cell = next(iter(CELLS))
    names = ("before practice", *ARMS)
    runs = [
        {"cell": cell, "seed": seed, "rates": {arm: asdict(wilson(successes, 10)) for arm in names}}
        for seed, successes in ((2, 4), (3, 8))
    ]
    runs.append({"cell": cell, "seed": 4, "rates": {"before practice": asdict(wilson(0, 10))}})  # nothing was found
    rows = {row["name"]: row for row in figures(runs)}
    assert len(rows) == len(names)
    before, both = (
        rows[f"memory_practice_touch_unseen_on_turned_scaled_{arm}"] for arm in ("before_practice", "both_memories")
    )
    assert (before["value"], before["n"], before["practices"]) == (0.4, 30, 3)
    assert (both["value"], both["n"], both["practices"]) == (0.6, 20, 2)


def test_an_unknown_cell_is_refused_by_name():
    with pytest.raises(UnknownNameError, match="stack on mars"):
        MemoryPracticeBenchmark(cells=("stack on mars",))
    assert memory_practice.SEARCH == 50
