"""Weaknesses are planted where a seed says, and a robot really stands still there."""

import json

import pytest

from engram.benchmarks import worst_case
from engram.benchmarks.worst_case import WorstCaseBenchmark, fails, main, planted, planted_cases
from engram.core.child import spawned_pool
from engram.sim.gaps import DEVIATIONS
from engram.validation.trials import TrialStore, at_place
from tests.validation.made import BASE


def test_one_in_five_needs_two_deviations_together():
    cases = planted_cases(10)
    assert cases == planted_cases(12)[:10]
    assert [len(case) for case in cases] == [1, 1, 1, 1, 2] * 2
    middle = [0.5] * len(DEVIATIONS)
    for case in cases:
        place = middle.copy()
        for at, low, high in case:
            assert not fails(case, place)
            place[at] = (low + high) / 2
        assert fails(case, place)


@pytest.mark.timeout(300)
def test_a_planted_policy_stands_still_there_and_drives_elsewhere(tmp_path):
    case = planted_cases(1)[0]
    ((at, low, high),) = case
    inside = [0.5] * len(DEVIATIONS)
    inside[at] = (low + high) / 2
    store = TrialStore(tmp_path)
    with spawned_pool(1) as pool:
        run = planted(case, store, pool)
        there, elsewhere = run([(BASE, at_place("reach", p), 90_000) for p in (inside, [0.5] * len(DEVIATIONS))])
    store.close()
    assert (there.success, elsewhere.success) == (False, True)


def test_what_was_found_is_counted_for_both_ways(tmp_path, monkeypatch):
    def told(case, store, pool):
        def run(jobs):
            return [
                worst_case.Trial(task, seed, "@" not in task or not fails(case, _place(task)), False, 30, 1.0)
                for _, task, seed in jobs
            ]

        return run

    monkeypatch.setattr(worst_case, "planted", told)
    main(WorstCaseBenchmark(quick=True, work=tmp_path / "work", output=tmp_path / "found.json"))
    report = json.loads((tmp_path / "found.json").read_text())
    figures = {row["name"]: row for row in report["figures"]}
    assert figures["worst_case_found_by_search"]["value"] == 1.0
    assert figures["worst_case_found_by_random"]["n"] == 2
    assert all(len(case["planted"]) == 1 for case in report["cases"])


def _place(task):
    return [float(at) for at in task.partition("@")[2].split(",")]
