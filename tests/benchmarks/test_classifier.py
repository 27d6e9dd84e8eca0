"""How the benchmark of success classifiers counts."""

import math

import numpy as np

from engram.benchmarks.classifier import CODE, ClassifierBenchmark, _reordered, rows_of
from engram.benchmarks.results_learning import _told
from engram.core.context_rows import ContextRows
from engram.core.types import CANNOT_TELL, CONFIRMED, DENIED
from engram.learning.replay.buffer import Episode
from engram.learning.rewards.success_classifier import figures_of


def test_a_quick_run_keeps_its_goals_apart_and_no_compiled_file_makes_them_other_goals(tmp_path):
    quick, whole = (ClassifierBenchmark(quick=quick, work=tmp_path).kept for quick in (True, False))
    assert quick != whole
    assert {quick.parent, whole.parent} == {tmp_path}
    assert all(pattern.endswith(".py") or pattern.startswith("policies/checkpoints") for pattern in CODE)


def test_what_was_told_is_counted_against_what_was_so_robot_by_robot():
    told = [CONFIRMED, CONFIRMED, DENIED, CANNOT_TELL, DENIED, DENIED]  # the first half on one robot
    success = [True, False, True, True, False, False]
    progress = {"rank": [1.0, 0.9, math.nan], "forwards": [0.8], "backwards": [-0.7], "still": [math.nan]}
    known = figures_of([CONFIRMED] * 4, [True] * 4)  # no goal was missed: there is no share of those
    found = {"told": told, "success": success, "progress": progress, "cross_validated": known}
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
    }
    assert rows["right_t_none"]["met"] is False and rows["right_t_taught"]["met"] and rows["progress_rank_t"]["met"]


def test_a_goal_is_shown_in_another_order_with_all_that_was_seen():
    steps = np.arange(4)
    context = ContextRows(np.eye(4, dtype=np.float32), steps[:, None].astype(np.int32), *(
        np.zeros((4, 1, *shape), np.float32) for shape in ((), (3,))), np.ones((4, 1), bool)
    )  # fmt: skip
    images = {"front": np.tile(steps[:, None, None, None], (1, 3, 2, 2)).astype(np.uint8)}
    column = steps[:, None].astype(np.float32)
    shown = _reordered(Episode(1, "t", "t", images, column, column, steps > 1, context), steps[::-1])
    assert shown.state[:, 0].tolist() == shown.images["front"][:, 0, 0, 0].tolist() == [3, 2, 1, 0]
    assert shown.context.which[:, 0].tolist() == [3, 2, 1, 0] and shown.person.tolist() == [True, True, False, False]


def test_where_nothing_was_told_the_page_says_so_and_no_target_is_missed():
    nothing = figures_of([CANNOT_TELL] * 4, [True] * 2 + [False] * 2)
    found = {"told": [CANNOT_TELL] * 2, "success": [True, False], "progress": {}, "cross_validated": nothing}
    rows = {row["name"]: row for row in rows_of("t", found)}
    assert not [name for name in rows if name.startswith("right")]
    assert _told(rows, "right_t_taught") == "nothing was told" and _told(rows, "false_success_t_none") == "–"
    assert _told(rows, "not_told_t_taught").endswith("(n 4)")
