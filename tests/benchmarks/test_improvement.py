"""How practices are summed up, and that they are run as the command runs them."""

import numpy as np
import pytest

from engram.benchmarks.improvement import ImprovementBenchmark, bootstrap, figures, iqm, main
from engram.core.errors import UnknownNameError


def run(arm, seed, *curve, told=10, false=0, helped=0):
    return {
        "cell": "stack on late",
        "arm": arm,
        "seed": seed,
        "curve": [list(point) for point in curve],
        "told_successes": told,
        "false_successes": false,
        "steps": 1000,
        "helped_steps": helped,
    }


def test_an_arm_is_the_mean_of_its_middle_seeds_with_an_interval_over_seeds_and_episodes():
    found = [run("corrections", s, (0, 40, 100), (100, k, 100)) for s, k in enumerate((10, 80, 82, 99))]
    found += [run("cloning", 0, (0, 40, 100), (100, 50, 100), told=30, false=3)]
    rows = {row["name"]: row for row in figures(found)}
    best = rows["improvement_stack_on_late_corrections_after_100"]
    assert (best["value"], best["n"], best["seeds"], best["met"]) == (0.81, 400, 4, True)
    assert best["interval"][0] < 0.5 < 0.81 < best["interval"][1]
    assert rows["improvement_stack_on_late_cloning_after_100"]["met"] is None
    assert rows["improvement_false_successes_learnt_from"]["value"] == round(3 / 70, 3)
    assert "improvement_helped_steps" not in rows
    found += [run("helped cloning", 0, (100, 60, 100), helped=90), run("helped cloning", 1, (100, 70, 100), helped=70)]
    helped = {row["name"]: row for row in figures(found)}["improvement_helped_steps"]
    assert (helped["value"], helped["n"]) == (0.08, 2000)


def test_the_interval_of_one_seed_is_that_of_its_episodes():
    low, high = bootstrap(np.array([50]), np.array([100]))
    assert low == pytest.approx(0.40, abs=0.011) and high == pytest.approx(0.60, abs=0.011)
    assert iqm(np.array([0.0, 0.4, 0.6, 1.0])) == pytest.approx(0.5)


@pytest.mark.timeout(300)
def test_practices_are_run_and_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("engram.benchmarks.improvement.CELLS", {"reach on none": ("none", "reach", 2)})
    arms = ("noisy cloning", "helped cloning")
    with pytest.raises(UnknownNameError, match="valid: advantage cloning, best of n, cloning, corrections, "):
        ImprovementBenchmark(arms=("cloned",), cells=())
    with pytest.raises(UnknownNameError, match=r"unknown ImprovementBenchmark\.cells 'stack on late'"):
        ImprovementBenchmark(arms=arms, cells=("stack on late",))
    config = ImprovementBenchmark(
        arms=arms,
        cells=("reach on none",),
        seeds=1,
        episodes=2,
        measured=1,
        work=tmp_path / "work",
        output=tmp_path / "improvement.json",
    )
    main(config)
    assert len(list((tmp_path / "work").iterdir())) == len(arms)
    assert "improvement_reach_on_none_noisy_cloning_after_2" in (tmp_path / "improvement.json").read_text()
    main(config)  # from what is kept
