"""The same episodes in process and through the nodes: what is run, and how it is judged."""

import json

import pytest

from engram.benchmarks import through_nodes
from engram.benchmarks.through_nodes import IN_PROCESS, LOCK_STEP, REAL_TIME, ThroughNodes, figures, found_by
from engram.core.statistics import wilson
from engram.nodes.loop_client import EpisodeReport


def test_every_mode_has_the_same_tasks_and_the_pushed_ones_again(monkeypatch):
    asked = []
    monkeypatch.setattr(through_nodes, "in_process", lambda _: {IN_PROCESS: {"reach": wilson(2, 2)}})

    def run(config, mode, pushed, domain):
        asked.append((mode, pushed, domain))
        return {"reach": ["succeeded", "failed" if pushed else "succeeded"]}

    found = found_by(ThroughNodes(quick=True, tasks=("reach",), pushed_tasks=("reach",)), run)
    assert [ask[:2] for ask in asked] == [(LOCK_STEP, False), (LOCK_STEP, True), (REAL_TIME, False), (REAL_TIME, True)]
    assert len({domain for *_, domain in asked}) == 4
    assert (found[LOCK_STEP]["reach"].rate, found["real time, pushed"]["reach"].rate) == (1.0, 0.5)


def test_what_the_way_through_the_nodes_costs_is_compared_with_the_same_disturbance():
    found = {IN_PROCESS: {"reach": wilson(20, 20)}, f"{IN_PROCESS}, pushed": {"reach": wilson(10, 20)}}
    found |= {LOCK_STEP: {"reach": wilson(19, 20)}, f"{LOCK_STEP}, pushed": {"reach": wilson(11, 20)}}
    told = {row["name"]: row for row in figures(found)}
    assert told["success_in_process_pushed"]["value"] == 0.5
    assert (told["loss_lock_step"]["value"], told["loss_lock_step"]["met"]) == (pytest.approx(0.05), False)
    assert (told["loss_lock_step_pushed"]["value"], told["loss_lock_step_pushed"]["met"]) == (
        pytest.approx(-0.05),
        True,
    )
    low, high = told["loss_lock_step"]["interval"]
    assert low < 0.05 < high


def test_a_run_that_was_cut_off_goes_on_where_it_was(tmp_path, monkeypatch):
    ran, cut_off = [], ["in the third episode"]

    class Nodes:
        def __init__(self, file, values, folder, domain):
            ran.append((file, values, domain))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def episode(self, task, seed, timeout_s):
            ran.append((task, seed))
            if cut_off and len(ran) == 4:
                raise RuntimeError(cut_off.pop())
            return EpisodeReport(task, seed, 1, "", "succeeded", "", 3, 0.1) if task == "reach" else "no outcome"

    monkeypatch.setattr(through_nodes, "running", Nodes)
    config = ThroughNodes(policy="base", tasks=("reach", "stack"), episodes=2, work=tmp_path)
    with pytest.raises(RuntimeError, match="in the third episode"):
        through_nodes.through_nodes(config, REAL_TIME, False, 9)
    assert ran[1:] == [("reach", 0), ("stack", 0), ("reach", 1)]
    values = {"viewer": "false", "learner": "false", "policy": "base", "lockstep": "false"}
    assert ran[0] == ("sim", values, 9)
    ran.clear()
    told = through_nodes.through_nodes(config, REAL_TIME, False, 9)
    assert told == {"reach": ["succeeded", "succeeded"], "stack": ["no outcome", "no outcome"]}
    assert ran[1:] == [("reach", 1), ("stack", 1)]
    (kept,) = tmp_path.glob("real time-*.json")
    assert json.loads(kept.read_text()) == told
    ran.clear()
    assert through_nodes.through_nodes(config, REAL_TIME, False, 9) == told and not ran
    through_nodes.through_nodes(config, LOCK_STEP, True, 9)
    assert ran[0][1]["lockstep"] == "true" and ran[0][1]["world"] == "engram.sim.pushes:PushedWorkcell"
