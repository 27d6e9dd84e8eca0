"""One command records, merges and trains the policy that remembers, looks up and reacts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engram.benchmarks import train_engram
from engram.benchmarks.train_engram import (
    LOOK_UP,
    RECORDINGS,
    SEE,
    START,
    EngramConfig,
    Recording,
    recording_config,
    trained,
)
from engram.core.dataset_check import EPISODE_LOG
from engram.core.errors import InvalidInputError
from engram.policies import load_policy
from engram.policies.checkpoint import CARD, WEIGHTS, sha256
from engram.runtime.record import FIRST_TRAINING_SEED, SEEDS_PER_PART, _parts
from engram.sim.tasks import SUITES


def test_no_episode_is_demonstrated_twice_nor_one_that_is_evaluated():
    configs = [recording_config(one, Path(name), EngramConfig()) for name, one in RECORDINGS.items()]
    parts = [part for config in configs for part in _parts(config)]
    begun = [(part.task.partition(":")[0], part.seed) for part in parts]
    assert len(set(begun)) == len(begun)
    assert all(seed % SEEDS_PER_PART == 0 and seed >= FIRST_TRAINING_SEED for _, seed in begun)
    assert {task for task, _ in begun} == set(SUITES["all"])


def test_the_start_is_what_its_card_says_and_has_both_memories():
    assert json.loads((START / CARD).read_text())["sha256"] == sha256(START / WEIGHTS)
    assert (START / WEIGHTS).stat().st_size < 20_000_000
    policy = load_policy(EngramConfig().start_from)
    assert policy.remembers and policy.reads_context


@pytest.mark.slow
@pytest.mark.render
def test_one_command_records_merges_and_trains_and_does_so_once(tmp_path, monkeypatch):
    few = {
        "unseen": Recording(("touch_unseen:alternatives=2",), 1, 1_200_000),
        "plain": Recording(("reach",), 1, 1_300_000, pushed=1.0, randomise_looks=True),
    }
    monkeypatch.setattr(train_engram, "RECORDINGS", few)
    for part in (SEE, LOOK_UP):
        monkeypatch.setitem(part, "processes", 1)
        monkeypatch.setitem(part, "emphasis", (("reach", 2.0),))
    config = EngramConfig(see_steps=5, steps=3, workers=1, work=tmp_path)
    policy = trained(config)
    card = json.loads((policy / CARD).read_text())
    assert (card["step"], card["tasks"]) == (3, ["reach", "touch_unseen:alternatives=2"])
    (first,) = tmp_path.glob("see0-*/policy")
    assert json.loads((first / CARD).read_text())["step"] == 2  # two fifths of five
    began, ended = (load_file(folder / WEIGHTS) for folder in (first, policy))
    changed = {name.split(".")[1] for name in began if not torch.equal(began[name], ended[name])}
    assert changed == {"recall", "memory", "state", "head"}  # perception is frozen in the second part
    (log,) = tmp_path.glob(f"dataset-*/{EPISODE_LOG}")
    assert [json.loads(line)["pushed"] for line in log.read_text().splitlines()] == [False, True]
    before = (policy / WEIGHTS).stat().st_mtime_ns
    assert trained(config) == policy
    assert (policy / WEIGHTS).stat().st_mtime_ns == before
    assert trained(replace(config, share=0.5)) != policy  # fewer demonstrations are another recording
    with pytest.raises(InvalidInputError, match=r"EngramConfig\.share: 0"):
        EngramConfig(share=0.0)
