"""Tasks that no shipped policy knows: an expert shows them, the memory understands them, and what was done is kept."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from engram.benchmarks import new_task
from engram.benchmarks.new_task import ARMS, TASKS, NewTaskBenchmark, figures, learnt
from engram.core.errors import UnknownNameError
from engram.core.statistics import wilson
from engram.learning.rewards.goal import AT, HELD, ON, goal_of
from engram.policies.opening import trained_instructions
from engram.policies.source import Source
from engram.runtime.factories import policy_folder
from engram.sim.tasks import task_class
from engram.validation.evaluation import evaluate_experts


@pytest.mark.parametrize("task", TASKS.values())
def test_an_expert_shows_it_and_the_memory_understands_its_words(task):
    assert evaluate_experts([task], episodes=5, progress=False).per_task[task].rate == 1.0
    goals = [goal_of(words.format(color="red")) for words in task_class(task).instructions]
    assert {goal.relation for goal in goals if goal} <= {AT, HELD, ON} and all(goals)


def test_no_shipped_policy_was_trained_on_their_words():
    new = {words.format(color="red") for task in TASKS.values() for words in task_class(task).instructions}
    for name in ("base", "engram"):
        assert not new & set(trained_instructions(Source(str(policy_folder(name)))))


@pytest.fixture
def done(monkeypatch, tmp_path):
    """A benchmark whose parts are told instead of done, and what was done."""
    done = []

    def record(config):
        done.append(f"record {config.episodes}")
        Path(config.root).mkdir(parents=True)

    def train(config):
        light = "".join(f" {name} {value}" for name, value in config.model)
        done.append(f"train {config.start_from} {Path(config.dataset).parent.name}{light}")
        (Path(config.out) / "policy").mkdir(parents=True)

    def practise(config):
        shown = " replays" * bool(config.demonstrations)
        done.append(f"practise {Path(config.policy).parts[-3]} {config.search} {config.oracle_help}{shown}")
        made = {"success": True, "steps": 20, "helped": 2 if config.oracle_help else 0}
        curve = [{"episodes": at, "success": asdict(wilson(rate, 10))} for at, rate in ((0, 6), (2, 7), (4, 9))]
        missed = made | {"success": False, "oracle_success": True}
        episodes = [made | {"oracle_success": True}, made | {"oracle_success": False}, *[missed] * 3]
        return {"curve": curve, "episodes": episodes}

    for stand_in in (record, train, practise):
        monkeypatch.setattr(new_task, stand_in.__name__, stand_in)
    return NewTaskBenchmark(tasks=("lift",), arms=tuple(ARMS), episodes=4, measured=10, work=tmp_path), done


def test_what_few_demonstrations_made_practises_and_nothing_is_trained_twice(done, monkeypatch):
    config, did = done
    monkeypatch.setattr(new_task, "measured", lambda *_: asdict(wilson(1, 10)))
    for _ in range(2):
        learnt(config, "lift")
    assert did[:4] == ["record 10", "train base 10", "record 50", "train base 50"]
    assert did[4:] == [
        "train base 10 brightness_jitter 0.3",
        *["practise 10 50 0.0", "practise 10 0 0.0", "practise 10 0 0.1", "practise 10 0 0.0 replays"] * 2,
    ]


def test_practice_without_help_is_held_to_the_target_and_false_successes_are_told(done, monkeypatch):
    config, _ = done
    rates = {"before": 0, "of_10": 6, "of_10_dim": 1, "of_50": 9}
    monkeypatch.setattr(new_task, "measured", lambda *told: asdict(wilson(rates.get(told[-1], 5), 10)))
    rows = {row["name"]: row for row in figures({"lift": learnt(config, "lift")})}
    assert [rows[f"new_task_lift_{name}"]["value"] for name in rates] == [0.0, 0.6, 0.1, 0.9]
    judged = {name: row["target"] for name, row in rows.items() if row["met"]}
    assert judged == {f"new_task_lift_{arm}_after_4": ">= 0.9" for arm in ("corrected", "imitated", "replayed")}
    assert rows["new_task_lift_imitated_false_successes"]["value"] == 0.5
    assert rows["new_task_lift_imitated_missed_successes"]["value"] == 0.75
    assert rows["new_task_lift_helped_helped"]["value"] == pytest.approx(0.1)


def test_a_policy_is_trained_anew_on_the_demonstrations_and_all_that_replays_brought_to_an_end(done, monkeypatch):
    config, did = done

    def make(asked):
        did.append(f"dataset {Path(asked.root).parent.name}")
        Path(asked.root).mkdir(parents=True)

    def merge(asked):
        did.append("merge " + " ".join(Path(part).parent.name for part in asked.parts))
        Path(asked.root).mkdir(parents=True)

    for name, stand_in in (("make_dataset", make), ("merge", merge)):
        monkeypatch.setattr(new_task, name, stand_in)
    monkeypatch.setattr(new_task, "measured", lambda *_: asdict(wilson(10, 10)))
    told = new_task.retrained(config, "lift", str(config.work / "lift" / "10" / "trained" / "policy"))
    assert {at: rate["rate"] for at, rate in told["curve"].items()} == {"0": 0.6, "50": 0.6, "100": 1.0}
    assert told["told_successes"] == 4
    assert did == [
        *("practise 10 0 0.0 replays", "dataset 0", "merge 10 0", "train base 0"),
        *("practise 0 0 0.0 replays", "dataset 1", "merge 10 0 1", "train base 1"),
    ]


def test_a_task_that_is_none_is_named(tmp_path):
    with pytest.raises(UnknownNameError, match=r"NewTaskBenchmark\.tasks 'throw'; valid: fetch, lift"):
        replace(NewTaskBenchmark(work=tmp_path), tasks=("throw",))
