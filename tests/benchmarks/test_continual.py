"""What is practised is measured beside what is not; each stage begins with what the last one left."""

import json
from dataclasses import asdict

import pytest

from engram.benchmarks import continual
from engram.benchmarks.continual import BEFORE, ContinualBenchmark, figures, main, matrix, stages
from engram.core.errors import InvalidInputError
from engram.core.statistics import wilson

SUCCESSES = {  # task -> before, and after each of two practices
    "reach": (9, 9, 9),
    "pick_place": (4, 10, 8),
    "stack": (5, 4, 10),
}


def told(task: str, place: int) -> dict:
    return asdict(wilson(SUCCESSES[task][place], 10)) | {"commit": "c"}


def practise(config):
    """Stand for a practice: the first finds something, the second nothing."""
    place = ["pick_place", "stack"].index(config.task)
    return {
        "config": {"task": config.task, "policy": config.policy},
        "policy": "runs/first" if place == 0 else None,
        "curve": [{"success": told(config.task, place)}, {"success": told(config.task, place + 1)}],
        "corrections": [],
        "others": {name: [told(name, place), told(name, place + 1)] for name in SUCCESSES if name != config.task},
    }


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setattr(continual, "practise", practise)
    return ContinualBenchmark(tasks=("pick_place", "stack"), work=tmp_path / "work", output=tmp_path / "out.json")


def test_a_stage_begins_with_what_the_last_one_left_and_is_not_done_twice(config, monkeypatch):
    reports = stages(config)
    assert [one["config"]["policy"] for one in reports] == ["base", "runs/first"]
    monkeypatch.setattr(continual, "practise", None)  # finished stages are read
    assert stages(config) == reports


def test_the_matrix_has_every_task_after_every_stage(config):
    found = matrix(stages(config))
    assert list(found) == [BEFORE, "pick_place", "stack"]
    for place, rates in enumerate(found.values()):
        assert {task: rate.successes for task, rate in rates.items()} == {t: s[place] for t, s in SUCCESSES.items()}


def test_losses_are_told_apart_by_whether_the_task_was_learnt(config):
    rows = {row["name"]: row for row in figures(matrix(stages(config)))}
    assert rows["continual_learnt_lost_most"]["value"] == pytest.approx(0.2)  # pick_place, while stack was practised
    assert rows["continual_learnt_lost_most"]["met"] is False
    assert rows["continual_other_lost_most"]["value"] == pytest.approx(0.1)  # stack, before it was practised
    assert rows["continual_stack_pick_place"]["value"] == 0.8


def test_the_report_holds_the_matrix(config):
    main(config)
    report = json.loads(config.output.read_text())
    assert len(report["figures"]) == 3 * 3 + 2 and [one["task"] for one in report["practices"]] == [
        "pick_place",
        "stack",
    ]


def test_nothing_to_measure_is_refused():
    with pytest.raises(InvalidInputError, match=r"ContinualBenchmark\.measured"):
        ContinualBenchmark(measured=0)
    with pytest.raises(InvalidInputError, match=r"ContinualBenchmark\.tasks: stack, stack, expected each once"):
        ContinualBenchmark(tasks=("stack", "stack"))
