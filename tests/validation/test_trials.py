"""What a result is kept under, and what an episode is run with."""

import shutil
import sys

import pytest

from engram.benchmarks.gate_policies import _made, candidates
from engram.core.errors import WeightsError
from engram.core.safety import SafetyFilter
from engram.runtime.factories import policy_folder
from engram.validation.gate import PROMOTE, Gate
from engram.validation.of_learner import contender
from engram.validation.trials import FIRST_SEED, IDLE, Contender, Trial, TrialStore, run_trial
from engram.validation.validate import IDLE_SCENES, _decide

NEW, OLD = Contender("new", sha256="new"), Contender("old", sha256="old")
TASK = """from engram.sim.tasks.reach import Reach


class Mine(Reach):
    pass
"""


def test_a_policy_that_succeeds_at_times_is_tried_until_it_is_shown_to_act():
    """Six of ten are too few to tell it from a robot that stands still."""
    stood = []

    def trials(jobs):
        stood.extend(seed for who, _, seed in jobs if who.checkpoint == IDLE)
        return [Trial(task, seed, who.checkpoint != IDLE and seed % 5 < 3, False, 9, 0.0) for who, task, seed in jobs]

    gate = Gate(("reach",))
    _decide(gate, NEW, OLD, {}, trials, lambda: None)
    assert gate.decision == PROMOTE
    assert IDLE_SCENES < len(stood) < gate.pairs  # and no longer


def test_a_result_of_a_task_that_was_edited_since_is_not_known(tmp_path, monkeypatch):
    file = tmp_path / "task_of_mine.py"
    file.write_text(TASK)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "task_of_mine", raising=False)
    trials = [Trial(task, 1, True, False, 9, 1.0) for task in ("task_of_mine:Mine", "reach")]
    store = TrialStore(tmp_path / "work")
    for trial in trials:
        store.put(OLD, trial)
    store.close()
    for text, known in ((TASK, trials), (TASK + "    # edited\n", [None, trials[1]])):
        file.write_text(text)
        store = TrialStore(tmp_path / "work")
        assert [store.get(OLD, trial.task, 1) for trial in trials] == known
        store.close()


def test_an_episode_tells_in_which_share_of_its_steps_the_safety_filter_intervened(tmp_path, monkeypatch):
    who = _made(candidates()["shakes forward and back"].change, "shaken", tmp_path)
    drives = contender(policy_folder("base"))
    shaken, usual = ([run_trial(one, "reach", FIRST_SEED + i) for i in range(3)] for one in (who, drives))
    assert all(trial.success for trial in (*shaken, *usual))
    assert sum(trial.breach for trial in shaken) > 0.3 > 0.15 > sum(trial.breach for trial in usual)
    assert all(trial.breach * trial.steps == pytest.approx(round(trial.breach * trial.steps)) for trial in shaken)
    store = TrialStore(tmp_path)
    store.put(who, shaken[0])
    assert store.get(who, "reach", FIRST_SEED) == shaken[0]
    store.close()
    monkeypatch.setattr(SafetyFilter, "filter", lambda its, positions, joints, *_: its.hold(joints, "collision"))
    assert run_trial(drives, "reach", FIRST_SEED).breach == 1.0  # refused


def test_weights_that_were_replaced_meanwhile_are_named_and_not_run(tmp_path):
    folder = tmp_path / "mine"
    shutil.copytree(policy_folder("base"), folder)
    who = contender(folder)
    config = folder / "config.json"
    config.write_text(config.read_text() + "\n")
    with pytest.raises(WeightsError, match=r"mine: its files have changed since the validation began"):
        run_trial(who, "reach", 1)
