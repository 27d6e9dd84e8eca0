"""Goals on a robot that nobody judges but its own memory: a simulation plays the hardware behind ros2_control's topics.

    python -m engram.benchmarks.twin [--quick]

:mod:`engram.benchmarks.robot_twin` says how the twin is reached. A goal ends when the memory is certain of success, or
by its time limit; afterwards the simulator's truth scores the verdict.
Finished goals are kept in ``work``. Prints a table; the last line is JSON, which also goes to
benchmarks/results/twin.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from engram.benchmarks.report import RESULTS, figure, save_report
from engram.benchmarks.robot_twin import Twin, TwinSettings
from engram.core.provenance import machine
from engram.core.statistics import wilson
from engram.sim.tasks import TASKS, get_task


@dataclass(frozen=True)
class TwinBenchmark:
    """What is measured."""

    quick: bool = False
    """One goal of each task."""
    goals: int = 10
    """Goals of each task, seeds 6000 and up."""
    policy: str = "base"
    """What drives."""
    domain: int = 45
    """ROS_DOMAIN_ID of the nodes."""
    work: Path = Path("runs/twin")
    """Folder of finished goals, and of the nodes' logs."""
    output: Path = RESULTS / "twin.json"
    """Where the JSON goes."""


@contextmanager
def running(config: TwinBenchmark) -> Iterator[Twin]:
    """Start twin and nodes; end them on leaving."""
    values = {"learner": "false", "policy": config.policy}
    twin = Twin(TwinSettings(config.work, config.domain, values, {}))
    try:
        twin.loop.wait_active()
        yield twin
    finally:
        twin.close()


def goals(config: TwinBenchmark) -> list[dict[str, Any]]:
    """Return what came of every goal, those of an earlier run first."""
    kept = config.work / f"goals-{config.policy.replace('/', '_')}.jsonl"
    kept.parent.mkdir(parents=True, exist_ok=True)
    found = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    known = {(goal["task"], goal["seed"]) for goal in found}
    wanted = [(task, 6000 + i) for i in range(1 if config.quick else config.goals) for task in TASKS]
    if todo := [one for one in wanted if one not in known]:
        with running(config) as twin, kept.open("a") as out:
            for task, seed in track(todo, "goals", console=Console(file=sys.stderr)):
                goal = twin.goal(task, seed)
                out.write(json.dumps(goal) + "\n")
                out.flush()
                found.append(goal)
    return [goal for goal in found if (goal["task"], goal["seed"]) in wanted]


def figures(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return how many goals were reached, how often the verdict is right, and how soon a goal ends."""
    rows = []
    right = [(goal["outcome"] == "succeeded") == goal["truth"] for goal in found]
    judged = [goal for goal in found if goal["outcome"] == "succeeded"]
    for name, hits in (
        ("twin_goals_succeeded", [goal["outcome"] == "succeeded" for goal in found]),
        ("twin_verdict_right", right),
        ("twin_false_success", [not goal["truth"] for goal in judged]),
    ):
        rate = wilson(sum(hits), max(1, len(hits)))
        rows.append(figure(name, rate.rate, len(hits), (rate.low, rate.high)))
    if judged:
        times = sorted(goal["duration_s"] for goal in judged)
        rows.append(figure("twin_goal_p50_s", times[len(times) // 2], len(times)))
    return rows


def main(config: TwinBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(TwinBenchmark)
    where = machine()
    found = goals(config)
    table = Table("task", "goals", "succeeded", "verdict right", title="Goals that the memory judged")
    for task in TASKS:
        those = [goal for goal in found if goal["task"] == task]
        right = sum((goal["outcome"] == "succeeded") == goal["truth"] for goal in those)
        done = sum(goal["outcome"] == "succeeded" for goal in those)
        table.add_row(get_task(task).name, str(len(those)), str(done), str(right))
    Console(stderr=True).print(table)
    told = replace(config, work=Path(config.work.name))
    save_report(config.output, "twin", where, told, figures=figures(found), goals=found)


if __name__ == "__main__":
    main()
