"""How verdicts are scored, and how the policy is disturbed."""

import numpy as np
import pytest

from engram.benchmarks.verdicts import MISHEARD, TRAINED, WAYS, Disturbed, VerdictBenchmark, figures, jobs, main
from engram.core.types import ActionChunk
from tests.runtime.test_loop import GoRight


def episode(verdict, truth, way=TRAINED, task="stack"):
    return {"verdict": verdict, "truth": truth, "way": way, "task": task}


def test_agreement_is_of_what_was_told_and_a_false_success_is_counted_for_itself():
    found = [
        *[episode("confirmed", True)] * 6,
        episode("confirmed", False),
        *[episode("denied", False)] * 2,
        episode("denied", True),
        *[episode("cannot_tell", True)] * 2,
    ]
    rows = {row["name"]: row for row in figures(found)}
    assert (rows["verdict_agreement"]["value"], rows["verdict_agreement"]["n"]) == (0.8, 10)
    assert rows["verdict_agreement"]["met"] is False
    assert (rows["verdict_false_success"]["value"], rows["verdict_false_success"]["n"]) == (round(1 / 7, 4), 7)
    assert (rows["verdict_missed_success"]["value"], rows["verdict_missed_success"]["n"]) == (round(3 / 9, 4), 9)
    assert rows["verdict_cannot_tell"]["value"] == round(2 / 12, 4)
    assert "verdict_agreement_reach" not in rows


def test_every_way_is_run_on_every_task_that_has_another_thing():
    todo = jobs(2)
    assert len(todo) == len(set(todo)) == 2 * (6 * len(WAYS) - 1)
    assert not any(way == MISHEARD and task == "open_drawer" for way, task, _ in todo)


class Aims(GoRight):
    def act(self):
        return ActionChunk(0, 1, "ee_delta", np.tile([1.0, 0, 0.5, 0, 0, 0, -1.0], (2, 1)), 0.1, 1, "v0")


def test_the_policy_is_turned_about_the_vertical_and_may_mishear():
    policy = Disturbed(Aims())
    policy.turn_rad, policy.told = np.pi / 2, "put the green cube in the bin"
    policy.reset("put the red cube in the bin")
    assert policy.policy.instruction == "put the green cube in the bin"
    np.testing.assert_allclose(policy.act().actions[0], [0, 1, 0.5, 0, 0, 0, -1], atol=1e-12)


@pytest.mark.timeout(300)
def test_episodes_are_judged_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("engram.benchmarks.verdicts.jobs", lambda seeds: [(way, "reach", 5_000) for way in WAYS])
    config = VerdictBenchmark(True, work=tmp_path / "work", output=tmp_path / "verdicts.json")
    main(config)
    lines = (tmp_path / "work" / "episodes.jsonl").read_text().splitlines()
    assert len(lines) == 3
    assert '"verdict": "confirmed", "truth": true' in lines[0]  # as it was trained
    assert '"verdict": "denied", "truth": false' in lines[2]  # it went to another cube
    main(config)
    assert (tmp_path / "work" / "episodes.jsonl").read_text().splitlines() == lines
