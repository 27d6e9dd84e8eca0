"""One run from base to a policy that remembers: recorded, merged, trained by one command."""

import json
from dataclasses import asdict

import pytest

from engram.benchmarks import memory_once
from engram.benchmarks.memory_arms import NAMES, PART
from engram.benchmarks.memory_once import RECORDINGS, RUN, OnceConfig, trained
from engram.benchmarks.report import RESULTS
from engram.core.dataset_check import EPISODE_LOG
from engram.core.errors import InvalidInputError
from engram.policies.checkpoint import CARD, WEIGHTS
from engram.policies.training.train_config import TrainConfig
from engram.runtime.record import FIRST_TRAINING_SEED, SEEDS_PER_PART, RecordConfig, _parts
from engram.sim.tasks import TASKS


def test_no_episode_is_demonstrated_twice_nor_one_that_is_evaluated():
    configs = [
        RecordConfig("", tasks=tasks, episodes=episodes, first_seed=first_seed, pushed=pushed, part_episodes=PART)
        for tasks, episodes, first_seed, pushed in RECORDINGS.values()
    ]
    parts = [part for config in configs for part in _parts(config)]
    begun = [(part.task.partition(":")[0], part.seed) for part in parts]
    assert len(set(begun)) == len(begun)
    assert all(seed % SEEDS_PER_PART == 0 and seed >= FIRST_TRAINING_SEED for _, seed in begun)
    assert {task for tasks, *_ in RECORDINGS.values() for task in tasks} == {*NAMES, *TASKS}
    with pytest.raises(InvalidInputError, match=r"OnceConfig\.steps"):
        OnceConfig(steps=0)


def test_the_committed_figures_are_of_what_the_command_trains():
    card = json.loads((RESULTS / "memory_once.json").read_text())["card"]
    # a setting that came later is as it was before there was one
    told = {"memory_dropout": 0.0} | card["train_config"]
    ran = TrainConfig("", start_from="base", steps=OnceConfig.steps, **RUN)
    # where it lay, whether it was cut off in between, and the share of the longer run that it was begun as
    free = ("dataset", "out", "resume", "perception_share")
    assert json.loads(json.dumps(asdict(ran))) | {name: told[name] for name in free} == told
    assert card["step"] == OnceConfig.steps
    assert card["perception_steps"] == round(RUN["perception_share"] * OnceConfig.steps)


def test_one_command_records_merges_and_trains_and_does_so_once(tmp_path, monkeypatch):
    few = {
        "first": (("shell_touch",), 1, 600_000, 0.0),
        "plain": (("shell_touch:delay=5", "reach"), 1, 710_000, 1.0),
    }
    monkeypatch.setattr(memory_once, "RECORDINGS", few)
    monkeypatch.setitem(RUN, "processes", 1)
    monkeypatch.setitem(RUN, "emphasis", (("shell_touch", 2.0),))
    config = OnceConfig(steps=2, workers=1, work=tmp_path)
    policy = trained(config)
    card = json.loads((policy / CARD).read_text())
    assert (card["step"], card["tasks"]) == (2, ["reach", "shell_touch", "shell_touch:delay=5"])
    (log,) = tmp_path.glob(f"dataset-*/{EPISODE_LOG}")
    assert [json.loads(line)["pushed"] for line in log.read_text().splitlines()] == [False, False, True]
    assert card["train_config"]["perception_share"] == RUN["perception_share"]
    before = (policy / WEIGHTS).stat().st_mtime_ns
    assert trained(config) == policy
    assert (policy / WEIGHTS).stat().st_mtime_ns == before
