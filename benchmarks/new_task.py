"""A task that a policy never saw: what ten demonstrations teach it, and what practice adds.

    python -m engram.benchmarks.new_task [--quick]

``base`` is trained on demonstrations of one task alone (``engram record``, ``engram train --start-from base``), and
then practises it (``engram improve``): corrected, where it searches for a correction of its motions, imitated, where it
imitates its own noisy successes, and helped, where beside that a scripted expert finishes what it does not get done,
as a person would with ``engram teleop``. Or the demonstrations are replayed in other scenes, moved to where the memory
sees the things of the words: replayed, where the policy learns from that as it goes, and retrained, where after each
round ``base`` is trained anew, on the demonstrations and what the replays brought to an end (``engram dataset``,
``engram merge``). The memory judges the practice.
The simulator scores, on scenes that nothing was learnt on; what was trained also in dim light, which no demonstration
has. Parts that are finished are kept in ``work``. Prints a table; the last line is JSON, which also goes to
benchmarks/results/new_task.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

from engram.app.improve import FIRST_TEST_SEED, ImproveConfig, folder_of, practise
from engram.benchmarks.report import RESULTS, figure, save_report
from engram.core.arrays import positive_int
from engram.core.durable import write_atomic
from engram.core.errors import unknown_name
from engram.core.provenance import machine
from engram.core.statistics import Rate
from engram.policies.loading import load_policy
from engram.policies.training.train import main as train
from engram.policies.training.train_config import TrainConfig
from engram.runtime.datasets import MergeConfig, merge
from engram.runtime.experience_dataset import DatasetConfig, make_dataset
from engram.runtime.record import RecordConfig, record
from engram.sim.worlds import make_mujoco_world
from engram.validation.evaluation import evaluate

TASKS = {"lift": "engram.benchmarks.new_task_tasks:Lift", "fetch": "engram.benchmarks.new_task_tasks:Fetch"}
"""Name -> task."""
ARMS: dict[str, dict[str, Any]] = {
    "corrected": {},
    "imitated": {"search": 0},
    "helped": {"search": 0, "oracle_help": 0.1},
    "replayed": {"search": 0},
}
"""Arm -> settings of ``engram improve``; the one that is replayed has the demonstrations beside."""
RETRAINED, ROUND = "retrained", 50
"""The arm that is trained anew, and its episodes of practice from one training to the next."""
WORLDS = {"": "tabletop", "_dim": "tabletop:gap=dim"}
"""End of a figure's name -> where what was trained is measured."""
TARGET = 0.9
"""Success that practice without help should reach."""


@dataclass(frozen=True)
class NewTaskBenchmark:
    """What is measured."""

    quick: bool = False
    """Twenty updates of training, ten episodes of each practice and measurement."""
    tasks: tuple[str, ...] = tuple(TASKS)
    """Which ones: lift, fetch."""
    arms: tuple[str, ...] = ("corrected", "imitated", "replayed", RETRAINED)
    """How it practises: corrected, imitated, helped, replayed, retrained."""
    policy: str = "base"
    """Where training begins."""
    demonstrations: tuple[int, ...] = (10, 50)
    """So many are trained on; what was made of the first practises."""
    jitter: float = 0.3
    """``brightness_jitter`` of one more training on the first: how far the light of its pictures is varied."""
    steps: int = 1000
    """Optimiser steps of each training."""
    episodes: int = 100
    """Episodes of each practice."""
    rounds: int = 2
    """Rounds of 50 episodes of the one that is retrained."""
    measured: int = 100
    """Episodes of each measurement."""
    seed: int = 0
    """Of trainings and practices."""
    work: Path = Path("runs/new_task")
    """Folder of datasets, trainings and practices."""
    output: Path = RESULTS / "new_task.json"
    """Where the JSON goes."""

    def __post_init__(self) -> None:
        for field, known in (("tasks", TASKS), ("arms", (*ARMS, RETRAINED))):
            for name in getattr(self, field):
                if name not in known:
                    raise unknown_name(f"NewTaskBenchmark.{field}", name, known)
        for name in ("steps", "episodes", "measured", "rounds"):
            positive_int(f"NewTaskBenchmark.{name}", getattr(self, name))
        for count in self.demonstrations:
            positive_int("NewTaskBenchmark.demonstrations", count)


def learnt(config: NewTaskBenchmark, task: str) -> dict[str, Any]:
    """Return what ``task`` comes to: its success before, after each training, and in the course of each practice."""
    few = config.demonstrations[0]
    trained = {f"of_{count}": trained_on(config, task, count) for count in config.demonstrations}
    trained |= {f"of_{few}_in_varied_light": trained_on(config, task, few, config.jitter)}
    rates = {"before": measured(config, task, config.policy, "tabletop", "before")}
    for name, policy in trained.items():
        rates |= {name + end: measured(config, task, policy, world, name + end) for end, world in WORLDS.items()}
    first = trained[f"of_{few}"]
    practice = {
        arm: retrained(config, task, first) if arm == RETRAINED else practised(config, task, first, arm)
        for arm in config.arms
    }
    return {"rates": rates, "practice": practice}


def trained_on(config: NewTaskBenchmark, task: str, count: int, jitter: float | None = None) -> str:
    """Return the folder of the policy that ``count`` demonstrations made, of an earlier run where there is one.

    ``jitter``: how far the light of their pictures is varied, if not as by default.
    """
    shown = _shown(config, task, count)
    if not shown.is_dir():
        record(RecordConfig(str(shown), tasks=(TASKS[task],), episodes=count, workers=1))
    return _trained(config, shown, shown.with_name("trained" if jitter is None else f"jitter{jitter:g}"), jitter)


def _shown(config: NewTaskBenchmark, task: str, count: int) -> Path:
    return config.work / task / f"{count}" / "dataset"


def _trained(config: NewTaskBenchmark, dataset: Path, out: Path, jitter: float | None = None) -> str:
    if not (out / "policy").is_dir():
        steps, start = 20 if config.quick else config.steps, config.policy
        model = () if jitter is None else (("brightness_jitter", jitter),)
        train(TrainConfig(str(dataset), str(out), steps=steps, start_from=start, seed=config.seed, model=model))
    return str(out / "policy")


def measured(config: NewTaskBenchmark, task: str, policy: str, where: str, stage: str) -> dict[str, Any]:
    """Return the success of ``policy`` in the world ``where``, that of an earlier run where there is one."""
    n, kept = 10 if config.quick else config.measured, config.work / task / f"{stage}.json"
    told: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    if told.get("n") != n:
        world, name = make_mujoco_world(where), TASKS[task]
        rate = evaluate(load_policy(policy), world, [name], episodes=n, first_seed=FIRST_TEST_SEED, progress=False)
        world.close()
        told = asdict(rate.per_task[name])
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(kept, json.dumps(told).encode())
    return told


def practised(config: NewTaskBenchmark, task: str, policy: str, arm: str) -> dict[str, Any]:
    """Return the curve of a practice, how right its verdicts were, and the share of steps that were helped."""
    n, episodes = (10, 10) if config.quick else (config.measured, config.episodes)
    work = config.work / task / arm
    shown = str(_shown(config, task, config.demonstrations[0])) if arm == "replayed" else ""
    settings = {**ARMS[arm], "seed": config.seed, "work": work, "demonstrations": shown}
    wanted = ImproveConfig(TASKS[task], "none", policy, episodes, (0, episodes // 2), n, **settings)
    report = practise(wanted)
    return _told({str(row["episodes"]): row["success"] for row in report["curve"]}, report["episodes"])


def retrained(config: NewTaskBenchmark, task: str, policy: str) -> dict[str, Any]:
    """Return what :func:`practised` does, of a practice in rounds, after each of which a new policy is trained."""
    n, episodes, rounds = (10, 10, 2) if config.quick else (config.measured, ROUND, config.rounds)
    parts = [shown := _shown(config, task, config.demonstrations[0])]
    curve, done = dict[str, Any](), list[dict[str, Any]]()
    for number in range(rounds):
        work = config.work / task / RETRAINED / f"{number}"
        seed = config.seed + number  # each round has scenes of its own
        wanted = ImproveConfig(TASKS[task], "none", policy, episodes, (0,), n, seed=seed, search=0, updates=0)
        wanted = replace(wanted, work=work / "practice", demonstrations=str(shown))
        report = practise(wanted)
        curve[str(number * episodes)] = report["curve"][0]["success"]
        done += report["episodes"]
        if any(one["success"] for one in report["episodes"]):
            if not (work / "dataset").is_dir():
                make_dataset(DatasetConfig((str(folder_of(wanted)),), str(work / "dataset")))
            parts.append(work / "dataset")
        if not (work / "merged").is_dir():
            merge(MergeConfig(tuple(map(str, parts)), str(work / "merged")))
        policy = _trained(config, work / "merged", work / "trained")
    curve[str(rounds * episodes)] = measured(config, task, policy, "tabletop", RETRAINED)
    return _told(curve, done)


def _told(curve: dict[str, Any], done: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "curve": curve,
        "told_successes": sum(one["success"] for one in done),
        "false_successes": sum(one["success"] and not one["oracle_success"] for one in done),
        "true_successes": sum(one["oracle_success"] for one in done),
        "missed_successes": sum(one["oracle_success"] and not one["success"] for one in done),
        "helped": sum(one["helped"] for one in done) / max(1, sum(one["steps"] for one in done)),
    }


def figures(found: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the successes of every task, those of practice without help beside their target."""
    rows = []
    for task, told in found.items():
        rows += [_row(f"new_task_{task}_{stage}", rate) for stage, rate in told["rates"].items()]
        for arm, practice in told["practice"].items():
            last = max(practice["curve"], key=int)
            for at, rate in practice["curve"].items():
                judged = TARGET if arm != "helped" and at == last else None
                rows.append(_row(f"new_task_{task}_{arm}_after_{at}", rate, judged))
            rows.append(figure(f"new_task_{task}_{arm}_helped", practice["helped"], 1))
            for kind, of in (("false", "told"), ("missed", "true")):
                wrong, n = practice[f"{kind}_successes"], practice[f"{of}_successes"]
                rows.append(figure(f"new_task_{task}_{arm}_{kind}_successes", wrong / max(1, n), n))
    return rows


def _row(name: str, rate: Mapping[str, Any], target: float | None = None) -> dict[str, Any]:
    told = Rate(**rate)
    wanted, met = (None, None) if target is None else (f">= {target:g}", told.rate >= target)
    return figure(name, told.rate, told.n, (told.low, told.high), wanted, met)


def main(config: NewTaskBenchmark | None = None) -> None:
    """Record, train, practise, measure, print, save."""
    config = config or tyro.cli(NewTaskBenchmark)
    where = machine()
    rows = figures({task: learnt(config, task) for task in config.tasks})
    table = Table("figure", "success", "95 % interval", "n", title="A new task")
    for row in rows:
        ends = row["interval"]
        interval = f"{ends[0]:.3f}..{ends[1]:.3f}" if ends else ""
        table.add_row(row["name"], f"{row['value']:.3f}", interval, str(row["n"]))
    Console(stderr=True).print(table)
    save_report(config.output, "new_task", where, config, figures=rows)


if __name__ == "__main__":
    main()
