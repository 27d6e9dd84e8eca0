"""A robot's nodes try corrections goal by goal, while a simulation plays the hardware."""

import json
import os

import pytest

from engram.benchmarks.robot_corrections import RobotCorrectionsBenchmark, figures, main
from engram.core.durable import unseal


def goal(arm, outcome, truth):
    return {"arm": arm, "outcome": outcome, "truth": truth}


def test_goals_are_scored_by_what_is_true_and_the_verdict_beside_it():
    found = [
        *[goal("without", "succeeded", False)] * 3,
        *[goal("search", "succeeded", True)] * 3,
        goal("search", "timeout", True),
        goal("found", "succeeded", True),
    ]
    rows = {row["name"]: row for row in figures(found)}
    assert [rows[f"robot_{arm}_reached"]["value"] for arm in ("without", "search", "found")] == [0.0, 1.0, 1.0]
    assert (rows["robot_verdict_right"]["value"], rows["robot_verdict_right"]["n"]) == (0.75, 4)


def test_the_scenes_that_measure_are_not_practised_on():
    config = RobotCorrectionsBenchmark()
    assert config.wanted("without") == config.wanted("found")
    assert not {*config.wanted("search")} & {*config.wanted("found")}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_nodes_of_a_robot_try_corrections_and_keep_how_they_ended(tmp_path):
    domain = int(os.environ["ROS_DOMAIN_ID"])
    files = {"work": tmp_path / "work", "output": tmp_path / "robot_corrections.json"}
    config = RobotCorrectionsBenchmark(task="reach", on="none", quick=True, goal_s=3.0, domain=domain, **files)
    before = [
        goal("without", "succeeded", True) | {"seed": seed, "corrected_by": "nothing"}
        for seed in config.wanted("without")
    ]
    config.work.mkdir()
    (config.work / "goals.jsonl").write_text("".join(json.dumps(one) + "\n" for one in before))  # of an earlier run
    main(config)
    assert _goals(tmp_path)[: len(before)] == before and len(_goals(tmp_path)) == 3 * len(before)
    (written,) = tmp_path.glob("**/corrections.json")
    (known,) = unseal(written.read_bytes()).values()
    ((_, times, _),) = known["trials"]
    assert times == 2  # the first goals are driven without a trial
    (line,) = {row["corrected_by"] for row in _goals(tmp_path) if row["arm"] == "found"}
    assert line == "motions as they are"


def _goals(folder):
    return [json.loads(line) for line in (folder / "work" / "goals.jsonl").read_text().splitlines()]
