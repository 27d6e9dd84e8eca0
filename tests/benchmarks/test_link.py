"""What the figures of the link say of a trial, and that a run goes on where it was cut off."""

import dataclasses
import json

from engram.benchmarks.link import CONDITIONS, Parts, trial_figures
from engram.benchmarks.link_trial import Trial, trial_from
from engram.nodes.loop_client import EpisodeReport


def trial(number: int, outcomes: tuple[str, ...], **values) -> Trial:
    episodes = [EpisodeReport("reach", 0, n, "go", outcome, "", 10, 1.0) for n, outcome in enumerate(outcomes)]
    return Trial(CONDITIONS[number], episodes, **values)


def by_name(rows):
    return {row["name"]: (row["value"], row["met"]) for row in rows}


def test_a_link_that_loses_an_episode_or_a_step_misses_its_target():
    clean = trial(0, ("succeeded", "succeeded"), recorded=20, stored=20)
    images = {"images_sent": {"front": 50}, "images_shown": {"front": 45}}
    bad = trial(1, ("succeeded", "failed"), recorded=19, stored=18, **images)
    rows = by_name(trial_figures(bad, clean))
    assert rows["link_lossy_success"] == (0.5, False)
    assert rows["link_lossy_steps_recorded_not_stored"] == (1, False)
    assert rows["link_lossy_steps_not_recorded"] == (1, False)
    assert rows["link_lossy_images_of_front_arrived"] == (0.9, None)
    good = trial(1, ("succeeded", "succeeded"), recorded=20, stored=20)
    assert by_name(trial_figures(good, clean))["link_lossy_success"] == (1.0, True)
    assert by_name(trial_figures(good, clean))["link_lossy_steps_recorded_not_stored"] == (0, True)
    waits = trial(1, ("succeeded", "succeeded"), recorded=20, stored=20, unacknowledged=1)
    assert by_name(trial_figures(waits, clean))["link_lossy_steps_recorded_not_stored"] == (0, False)


def test_each_cut_is_to_be_told_by_both_sides():
    told = {"link_node": 2, "far_link_node": 1}
    values = {"recorded": 20, "stored": 20, "cuts": 2, "lost": told, "restored": told}
    rows = by_name(trial_figures(trial(2, ("succeeded", "succeeded"), **values), trial(0, ("succeeded", "succeeded"))))
    assert rows["link_lossy_and_cut_cuts_told_by_link_node"] == (2, True)
    assert rows["link_lossy_and_cut_cuts_told_by_far_link_node"] == (1, False)


def test_a_run_goes_on_from_the_parts_that_were_measured(tmp_path):
    first = trial(1, ("succeeded",), recorded=10, stored=10)
    assert Parts(tmp_path, 1).get("lossy", lambda: dataclasses.asdict(first)) == dataclasses.asdict(first)
    parts = Parts(tmp_path, 0)
    assert trial_from(parts.get("lossy", dict)) == first
    assert parts.get("clean", dict) is None
    assert json.loads((tmp_path / "lossy.json").read_text())["recorded"] == 10
