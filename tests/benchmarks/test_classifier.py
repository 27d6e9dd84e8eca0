"""How the benchmark of success classifiers counts."""

import math
from typing import cast

import numpy as np
import pytest
import torch

from engram.benchmarks.classifier import CODE, ClassifierBenchmark, _gain, _last, progress, rows_of
from engram.benchmarks.results_learning import _told
from engram.core.types import CANNOT_TELL, CONFIRMED, DENIED
from engram.learning.rewards.labelled_episodes import labelled_episodes
from engram.learning.rewards.success_classifier import Ensemble, SuccessClassifier, figures_of
from engram.policies.loading import load_policy
from engram.policies.vla.vla_policy import VlaPolicy
from tests.app.test_classifier import goal, stored


def test_a_quick_run_keeps_its_goals_apart_and_no_compiled_file_makes_them_other_goals(tmp_path):
    quick, whole = (ClassifierBenchmark(quick=quick, work=tmp_path).kept for quick in (True, False))
    assert quick != whole
    assert {quick.parent, whole.parent} == {tmp_path}
    assert all(pattern.endswith(".py") or pattern.startswith("policies/checkpoints") for pattern in CODE)


def test_what_was_told_is_counted_against_what_was_so_robot_by_robot():
    told = [CONFIRMED, CONFIRMED, DENIED, CANNOT_TELL, DENIED, DENIED]  # the first half on one robot
    success = [True, False, True, True, False, False]
    ways = {"rank": [1.0, 0.9, math.nan], "forwards": [0.8], "backwards": [-0.7], "still": [math.nan]}
    ways["wrong_words"] = [0.2]
    known = figures_of([CONFIRMED] * 4, [True] * 4)  # no goal was missed: there is no share of those
    found = {"told": told, "success": success, "progress": ways, "cross_validated": known}
    rows = {row["name"]: row for row in rows_of("t", found)}
    assert {name: (row["value"], row["n"]) for name, row in rows.items()} == {
        "right_t_taught": (1.0, 4),
        "missed_t_taught": (0.0, 4),
        "not_told_t_taught": (0.0, 4),
        "right_t_none": (0.333, 3),
        "false_success_t_none": (1.0, 1),
        "missed_t_none": (0.5, 2),
        "not_told_t_none": (0.0, 3),
        "right_t_turned_scaled": (1.0, 2),
        "false_success_t_turned_scaled": (0.0, 2),
        "missed_t_turned_scaled": (0.0, 1),
        "not_told_t_turned_scaled": (0.333, 3),
        "progress_rank_t": (0.95, 2),
        "progress_forwards_t": (0.8, 1),
        "progress_backwards_t": (-0.7, 1),
        "progress_wrong_words_t": (0.2, 1),
    }
    assert rows["right_t_none"]["met"] is False and rows["right_t_taught"]["met"] and rows["progress_rank_t"]["met"]


def test_goals_are_shown_backwards_standing_still_and_under_other_words(tmp_path):
    base = cast(VlaPolicy, load_policy("base"))
    words = ["touch the red cup in the dark", "touch the blue cup in the dark", "touch the red cup in the dark"]
    goals = [goal(base.lineage.id, number, number < 2, words=words[number]) for number in range(3)]
    stored(tmp_path, goals)
    encoder, seen = labelled_episodes(tmp_path, base)
    learnt = SuccessClassifier(encoder, words, Ensemble(seen[0].features.shape[1], 4, 1), {})
    learnt.network.know(torch.from_numpy(np.concatenate([one.features for one in seen])))
    told = progress(base, learnt, tmp_path, seen)
    assert {name: len(values) for name, values in told.items()} == {
        **dict.fromkeys(("rank", "forwards", "backwards", "still", "wrong_words"), 2),
        "missed": 1,
    }
    for forwards, backwards, still in zip(told["forwards"], told["backwards"], told["still"], strict=True):
        assert forwards == pytest.approx(-backwards, abs=1e-4) and still == pytest.approx(0.0, abs=1e-4)  # no memory
    assert told["missed"] == [pytest.approx(learnt.judge(seen[2].features)[-1, 1])]


def test_what_is_not_told_is_no_gain_and_no_end():
    nothing, one = np.full(3, np.nan), np.array([np.nan, 0.4, np.nan])
    assert math.isnan(_gain(nothing)) and math.isnan(_gain(one)) and math.isnan(_last(nothing)) and _last(one) == 0.4
    assert _gain(np.array([0.1, np.nan, 0.4, np.nan])) == pytest.approx(0.3)


def test_where_nothing_was_told_the_page_says_so_and_no_target_is_missed():
    nothing = figures_of([CANNOT_TELL] * 4, [True] * 2 + [False] * 2)
    found = {"told": [CANNOT_TELL] * 2, "success": [True, False], "progress": {}, "cross_validated": nothing}
    rows = {row["name"]: row for row in rows_of("t", found)}
    assert not [name for name in rows if name.startswith("right")]
    assert _told(rows, "right_t_taught") == "nothing was told" and _told(rows, "false_success_t_none") == "–"
    assert _told(rows, "not_told_t_taught").endswith("(n 4)")
