"""One command records, merges and trains the policy that remembers, looks up and reacts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engram.benchmarks import train_engram
from engram.benchmarks.train_engram import RECORDINGS, RUN, EngramConfig, Recording, recording_config, trained
from engram.core.errors import InvalidInputError
from engram.policies.checkpoint import CARD, WEIGHTS
from engram.runtime.record import EPISODE_LOG, FIRST_TRAINING_SEED, SEEDS_PER_PART, _parts
from engram.sim.tasks import SUITES


def test_no_episode_is_demonstrated_twice_nor_one_that_is_evaluated():
    configs = [recording_config(one, Path(name), EngramConfig()) for name, one in RECORDINGS.items()]
    parts = [part for config in configs for part in _parts(config)]
    begun = [(part.task.partition(":")[0], part.seed) for part in parts]
    assert len(set(begun)) == len(begun)
    assert all(seed % SEEDS_PER_PART == 0 and seed >= FIRST_TRAINING_SEED for _, seed in begun)
    assert {task for task, _ in begun} == set(SUITES["all"])


@pytest.mark.slow
@pytest.mark.render
def test_one_command_records_merges_and_trains_and_does_so_once(tmp_path, monkeypatch):
    few = {
        "unseen": Recording(("touch_unseen:alternatives=2",), 1, 1_200_000),
        "plain": Recording(("reach",), 1, 1_300_000, pushed=1.0, randomise_looks=True),
    }
    monkeypatch.setattr(train_engram, "RECORDINGS", few)
    monkeypatch.setitem(RUN, "processes", 1)
    monkeypatch.setitem(RUN, "emphasis", (("reach", 2.0),))
    config = EngramConfig(steps=2, workers=1, work=tmp_path)
    policy = trained(config)
    card = json.loads((policy / CARD).read_text())
    assert (card["step"], card["tasks"]) == (2, ["reach", "touch_unseen:alternatives=2"])
    (log,) = tmp_path.glob(f"dataset-*/{EPISODE_LOG}")
    assert [json.loads(line)["pushed"] for line in log.read_text().splitlines()] == [False, True]
    before = (policy / WEIGHTS).stat().st_mtime_ns
    assert trained(config) == policy
    assert (policy / WEIGHTS).stat().st_mtime_ns == before
    assert trained(replace(config, share=0.5)) != policy  # fewer demonstrations are another recording
    with pytest.raises(InvalidInputError, match=r"EngramConfig\.share: 0"):
        EngramConfig(share=0.0)
