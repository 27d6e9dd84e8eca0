"""The policies that the shipped memory is compared with: one recipe, and nothing but the memory is new."""

import json
from dataclasses import replace

import pytest
from safetensors.torch import load_file

from engram.benchmarks import memory_arms
from engram.benchmarks.memory_arms import NAMES, RECALL, ArmsConfig, trained
from engram.core.errors import UnknownNameError
from engram.policies.checkpoint import CARD, WEIGHTS
from engram.policies.opening import checkpoint_folder
from engram.sim.tasks import TASKS, expand
from engram.sim.tasks.memory import MEMORY_TASKS


def test_every_task_is_demonstrated_with_other_delays():
    assert expand(NAMES) == NAMES
    for task in MEMORY_TASKS:
        assert sum(name.partition(":")[0] == task for name in NAMES) == 4
        assert f"{task}:delay=5" in NAMES or f"{task}:delay=5,first_color=1" in NAMES
    assert set(TASKS) < set(NAMES)


def test_an_unknown_arm_is_named():
    with pytest.raises(UnknownNameError, match=r"unknown arm 'lstm'.*gru"):
        ArmsConfig(arms=("none", "lstm"))


def test_arms_see_as_memory_does_and_have_new_memories(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_arms, "NAMES", ("shell_touch",))
    monkeypatch.setattr(memory_arms, "run_spawned", lambda function, runs, *_, **how: map(function, runs))
    config = ArmsConfig(arms=("bank", "none"), episodes=2, steps=1, workers=1, work=tmp_path)
    policies = trained(config)
    shipped = load_file(checkpoint_folder("engram") / WEIGHTS)
    bank, none = (load_file(policies[arm] / WEIGHTS) for arm in ("bank", "none"))
    seen = {name for name in shipped if name.startswith("model.encoders.")}
    assert seen and all(arm[name].equal(shipped[name]) for arm in (bank, none) for name in seen)
    assert not any(name.startswith("model.recall.") for name in none)
    learnt = [name for name in shipped if name.startswith(RECALL) and shipped[name].ndim == 2 and "fuse" not in name]
    # the one step at a hundredth of the learning rate moves no weight far: what is far was drawn anew
    assert learnt and all((bank[name] - shipped[name]).abs().mean() > 0.01 for name in learnt)
    kept = "model.head.enter.weight"
    assert (bank[kept] - shipped[kept]).abs().mean() < 0.001
    cards = {arm: json.loads((policy / CARD).read_text()) for arm, policy in policies.items()}
    assert cards["bank"]["dataset_sha256"] == cards["none"]["dataset_sha256"]
    assert cards["bank"]["train_config"]["memory"] == "bank"

    before = (policies["none"] / WEIGHTS).stat().st_mtime_ns
    assert trained(config) == policies
    assert (policies["none"] / WEIGHTS).stat().st_mtime_ns == before  # what is there is not trained again
    monkeypatch.setitem(memory_arms.RECIPE, "keyframes", 0.5)
    other = trained(replace(config, arms=("none",)))["none"]
    assert other != policies["none"]  # nor taken for what other settings train
    assert json.loads((other / CARD).read_text())["train_config"]["keyframes"] == 0.5
