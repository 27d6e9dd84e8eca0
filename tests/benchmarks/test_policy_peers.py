"""Peers train for equal core-minutes, go on from LeRobot's last checkpoint, and are compared on the same tasks."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engram.benchmarks import policy_peers
from engram.benchmarks.policy_peers import PeersBenchmark, core_minutes, suite_figures, train
from engram.core.errors import EngramError, UnknownNameError
from engram.core.statistics import wilson
from engram.sim.tasks import SUITES

TRAINS = """#!/bin/sh
# stands for lerobot-train: saves a checkpoint, says how it was called, and goes on until it is ended
echo "$@" >> {out}/called
mkdir -p {out}/act/checkpoints/{step} && ln -sfn {step} {out}/act/checkpoints/last
mkdir -p {out}/act/checkpoints/last/pretrained_model
exec {python} -c "import time
while time.process_time() < {lasts}: pass"
"""


def stand_in(folder: Path, step: int, lasts: int) -> None:
    script = folder / "bin" / "lerobot-train"
    script.parent.mkdir(exist_ok=True)
    script.write_text(TRAINS.format(python=sys.executable, out=folder, step=step, lasts=lasts))
    script.chmod(0o755)


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(policy_peers, "POLL_S", 0.05)
    return PeersBenchmark(dataset=tmp_path / "data", work=tmp_path)


def test_a_training_ends_with_its_minutes_and_a_longer_one_goes_on(config, tmp_path):
    stand_in(tmp_path, 100, 60)
    folder = train("act", config, 0.01)
    assert folder == tmp_path / "act" / "checkpoints" / "last" / "pretrained_model"
    assert train("act", config, 0.01) == folder  # its minutes are spent
    stand_in(tmp_path, 200, 60)
    train("act", config, 0.02)
    first, second = (tmp_path / "called").read_text().splitlines()
    assert f"--dataset.root={tmp_path / 'data'}" in first
    assert "--resume=true" in second and f"--config_path={folder / 'train_config.json'}" in second
    checkpoints = tmp_path / "act" / "checkpoints"
    assert os.readlink(checkpoints / "last") == "200"
    assert not (checkpoints / "100").exists()  # gigabytes each


def test_a_training_does_not_go_on_with_other_settings_than_it_was_begun_with(config, tmp_path, monkeypatch):
    stand_in(tmp_path, 100, 60)
    train("act", config, 0.01)
    other = "act: was begun with --batch_size=8, expected --batch_size=16; choose another"
    for minutes in (0.01, 0.02):  # spent or not
        with pytest.raises(EngramError, match=other):
            train("act", replace(config, batch_size=16), minutes)
    monkeypatch.setitem(policy_peers.SETTINGS, "act", ("--policy.dim_model=64",))
    with pytest.raises(EngramError, match=r"act: was begun with --policy\S*null, expected --policy.dim_model=64"):
        train("act", config, 0.02)
    (tmp_path / "act.json").unlink()  # as of a training whose minutes were not those that it computed
    with pytest.raises(EngramError, match="act: was begun with settings that nobody kept"):
        train("act", config, 0.02)
    assert len((tmp_path / "called").read_text().splitlines()) == 1


def test_a_quick_run_tries_two_episodes_a_task(config, tmp_path, monkeypatch):
    tried = []
    monkeypatch.setattr(policy_peers, "train", lambda peer, its, minutes: tried.append(minutes) or tmp_path / peer)

    def evaluated(name, policy, tasks, its):
        tried.append(its.episodes)
        return {task: wilson(1, its.episodes) for task in tasks}

    monkeypatch.setattr(policy_peers, "evaluated", evaluated)
    policy_peers.main(replace(config, quick=True, peers=("act",), output=tmp_path / "peers.json"))
    assert tried == [2.0, 2, 2]


def test_a_training_that_ends_by_itself_is_an_error(config, tmp_path):
    stand_in(tmp_path, 100, 0)
    with pytest.raises(EngramError, match="lerobot-train ended with 0"):
        train("act", config, 1.0)
    with pytest.raises(UnknownNameError, match="diffusion"):
        PeersBenchmark(dataset=tmp_path, peers=("acts",))


def test_minutes_count_on_every_core_and_ours_is_ahead_by_the_difference_of_means():
    first = {"trained_minutes": 40.0, "processes": 2}
    assert core_minutes(first) == 80.0
    assert core_minutes({"trained_minutes": 10.0, "processes": 1, "started_from": first}) == 90.0
    tasks = (*SUITES["memory"], *SUITES["tabletop"])
    ours, theirs = ({task: wilson(won, 10) for task in tasks} for won in (9, 6))
    rows = {row["name"]: row for row in suite_figures("act", theirs, ours)}
    assert rows["ours_ahead_of_act_memory"]["value"] == pytest.approx(0.3)
    assert [rows[f"ours_ahead_of_act_{suite}"]["met"] for suite in ("memory", "tabletop")] == [False, True]
    assert [row["name"] for row in suite_figures("ours", ours, ours)] == ["ours_memory", "ours_tabletop"]
