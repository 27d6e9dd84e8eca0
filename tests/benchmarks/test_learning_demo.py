"""What the demo of learning came to, from what it said."""

import json
import sys

import pytest

from engram.benchmarks import learning_demo
from engram.benchmarks.learning_demo import LearningDemoBenchmark, figures, shown
from engram.core.errors import EngramError

TOLD = {"before": [1, 10], "after": [9, 10], "minutes": 10.3, "version": "v1", "task": "pick_place", "robot": "late"}


def test_goals_and_minutes_are_told_beside_their_targets():
    rows = {row["name"]: row for row in figures(TOLD)}
    assert (rows["learning_demo_before"]["value"], rows["learning_demo_before"]["met"]) == (0.1, None)
    assert (rows["learning_demo_after"]["value"], rows["learning_demo_after"]["met"]) == (0.9, True)
    assert (rows["learning_demo_minutes"]["value"], rows["learning_demo_minutes"]["met"]) == (10.3, True)
    nothing = {row["name"]: row for row in figures(TOLD | {"after": [0, 0], "minutes": None})}
    assert nothing["learning_demo_after"]["met"] is False
    assert (nothing["learning_demo_minutes"]["value"], nothing["learning_demo_minutes"]["met"]) == (-1.0, False)


@pytest.mark.parametrize(("problem", "says"), [(None, TOLD), ("gate_node stays down", None)])
def test_the_demo_s_last_line_is_read(monkeypatch, tmp_path, problem, says):
    """A program that prints what the demo would stands for it."""
    said = tmp_path / "engram"
    said.write_text(f"print('first line')\nprint({json.dumps(json.dumps({'problem': problem, 'learning': says}))})")
    run = learning_demo.subprocess.run
    monkeypatch.setattr(learning_demo.subprocess, "run", lambda words, **how: run([sys.executable, said], **how))
    if problem is None:
        assert shown(LearningDemoBenchmark(quick=True)) == TOLD
    else:
        with pytest.raises(EngramError, match="gate_node stays down"):
            shown(LearningDemoBenchmark())
