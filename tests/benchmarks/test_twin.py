"""A robot's nodes reach goals that only their memory ends, while a simulation plays the hardware."""

import json
import os

import pytest

from engram.benchmarks import twin
from engram.benchmarks.twin import TwinBenchmark, figures, main


def goal(outcome, truth, duration_s=3.0, arm="twin"):
    counts = {"answers": 10, "answers_late": 10 if arm == "twin_without_wait" else 1}
    return {"arm": arm, "task": "reach", "outcome": outcome, "truth": truth, "duration_s": duration_s, **counts}


def test_a_goal_that_ended_too_early_is_counted_as_a_false_success():
    found = [
        *[goal("succeeded", True)] * 3,
        goal("succeeded", False, 9.0),
        goal("timeout", True),
        goal("timeout", False),
        goal("timeout", False, arm="twin_without_wait"),
    ]
    rows = {row["name"]: row for row in figures(found)}
    assert rows["twin_goals_succeeded"]["value"] == pytest.approx(4 / 6, abs=1e-3)
    assert rows["twin_verdict_right"]["value"] == pytest.approx(4 / 6, abs=1e-3)
    assert (rows["twin_false_success"]["value"], rows["twin_false_success"]["n"]) == (0.25, 4)
    assert rows["twin_goal_p50_s"]["value"] == 3.0
    assert (rows["twin_answers_late"]["value"], rows["twin_without_wait_answers_late"]["value"]) == (0.1, 1.0)
    assert rows["twin_without_wait_goals_succeeded"]["value"] == 0.0


@pytest.mark.timeout(300)
def test_the_nodes_of_a_robot_reach_a_goal_that_no_simulator_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(twin, "TASKS", ("reach",))
    monkeypatch.setattr(twin, "ARMS", {"twin": twin.SHIPPED})
    domain = int(os.environ["ROS_DOMAIN_ID"])
    config = TwinBenchmark(quick=True, domain=domain, work=tmp_path / "work", output=tmp_path / "twin.json")
    main(config)
    (only,) = json.loads((tmp_path / "twin.json").read_text())["goals"]
    assert (only["outcome"], only["truth"]) == ("succeeded", True), only
    assert only["reason"].startswith("judged by memory: the hand above the ")
    monkeypatch.setattr(twin, "running", lambda *_: pytest.fail("it was already known"))
    main(config)
