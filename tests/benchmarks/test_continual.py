"""What is practised is measured beside what is not; each stage begins with what the last one left."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from engram.benchmarks import continual
from engram.benchmarks.continual import BEFORE, ContinualBenchmark, changed, figures, main, matrix, stages
from engram.core.errors import InvalidInputError, StoreError
from engram.core.motion_correction import MotionCorrection
from engram.core.statistics import wilson

SUCCESSES = {  # task -> before, and after each of two practices
    "reach": (9, 9, 9),
    "pick_place": (4, 10, 8),
    "stack": (5, 4, 10),
}


def told(task: str, place: int) -> dict:
    return asdict(wilson(SUCCESSES[task][place], 10)) | {"commit": "c"}


def practise(config):
    """Stand for a practice, and tell of it as ``engram improve`` does."""
    place = ["pick_place", "stack"].index(config.task)
    return {
        "config": asdict(config) | {"on": Path(config.on).name, "work": config.work.name},
        "policy": ("runs/first", "runs/second")[place],
        "curve": [{"success": told(config.task, place)}, {"success": told(config.task, place + 1)}],
        "corrections": [asdict(MotionCorrection()), asdict(MotionCorrection(1.2))][: 2 - place],
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


@pytest.mark.parametrize(
    ("another", "told"),
    [
        ({"policy": "engram"}, "policy base, not engram"),
        ({"on": "late"}, "on turned, not late"),
        ({"quick": True}, "episodes 100, not 10; measured 100, not 10"),
        ({"seed": 3}, "seed 0, not 3"),
        ({"tasks": ("stack", "pick_place")}, "task pick_place, not stack"),
    ],
)
def test_stages_of_another_run_are_refused(config, monkeypatch, another, told):
    stages(config)
    monkeypatch.setattr(continual, "practise", None)
    with pytest.raises(InvalidInputError, match=rf"stage0\.json: of another run, with {told}; choose another .*--work"):
        stages(replace(config, **another))


def test_a_stage_that_began_with_other_weights_is_refused_and_a_twins_folder_does_not_matter(config, monkeypatch):
    config = replace(config, on="robots/mine.json")
    assert len(stages(config)) == 2
    monkeypatch.setattr(continual, "practise", None)
    assert len(stages(replace(config, on="elsewhere/mine.json"))) == 2
    first = config.work / "stage0.json"
    first.write_text(json.dumps(json.loads(first.read_text()) | {"policy": "runs/anew"}))
    with pytest.raises(
        InvalidInputError, match=r"stage1\.json: of another run, with policy runs/first, not runs/anew;"
    ):
        stages(config)
    first.write_text("{}")
    with pytest.raises(StoreError, match=r"stage0\.json: cannot be read"):
        stages(config)


def test_the_matrix_has_every_task_after_every_stage(config):
    found = matrix(stages(config))
    assert list(found) == [BEFORE, "pick_place", "stack"]
    for place, rates in enumerate(found.values()):
        assert {task: rate.successes for task, rate in rates.items()} == {t: s[place] for t, s in SUCCESSES.items()}


def test_losses_are_told_apart_by_whether_the_task_was_learnt(config):
    rows = {row["name"]: row for row in figures(matrix(stages(config)), ["pick_place", "stack"])}
    assert rows["continual_learnt_lost_most"]["value"] == pytest.approx(0.2)  # pick_place, while stack was practised
    assert rows["continual_learnt_lost_most"]["met"] is False
    assert rows["continual_other_lost_most"]["value"] == pytest.approx(0.1)  # stack, before it was practised
    assert rows["continual_stack_pick_place"]["value"] == 0.8


@pytest.mark.parametrize(
    ("found", "learnt", "other"),
    [
        ((), None, None),
        (("pick_place",), None, False),
        (("stack",), None, False),
        (("pick_place", "stack"), False, False),
    ],
)
def test_what_nobody_could_have_lost_is_not_judged(config, monkeypatch, found, learnt, other):
    def finds(one):
        return practise(one) | ({} if one.task in found else {"policy": None})

    monkeypatch.setattr(continual, "practise", finds)
    reports = stages(config)
    assert changed(reports) == list(found)
    rows = {row["name"]: row for row in figures(matrix(reports), changed(reports))}
    assert (rows["continual_learnt_lost_most"]["met"], rows["continual_other_lost_most"]["met"]) == (learnt, other)


def test_the_report_holds_the_matrix(config):
    main(config)
    report = json.loads(config.output.read_text())
    assert len(report["figures"]) == 3 * 3 + 2
    assert report["practices"] == [  # what a search found to be none is no correction
        {"task": "pick_place", "corrections": [asdict(MotionCorrection(1.2))]},
        {"task": "stack", "corrections": []},
    ]


def test_nothing_to_measure_is_refused():
    with pytest.raises(InvalidInputError, match=r"ContinualBenchmark\.measured"):
        ContinualBenchmark(measured=0)
    with pytest.raises(InvalidInputError, match=r"ContinualBenchmark\.tasks: stack, stack, expected each once"):
        ContinualBenchmark(tasks=("stack", "stack"))
