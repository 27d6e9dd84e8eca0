"""Goals on a robot that nobody judges but its own memory: a simulation plays the hardware behind ros2_control's topics.

    python -m engram.benchmarks.twin [--quick]

:mod:`engram.benchmarks.robot_twin` says how the twin is reached. A goal ends when the memory is certain of success, or
by its time limit; afterwards the simulator's truth scores the verdict. The same goals run with the safety node as it is
shipped, which waits a part of a control step for the policy's answer, and with one that waits for none.
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
from engram.runtime.parameters.safety import SafetyNodeConfig
from engram.sim.tasks import TASKS, get_task

SHIPPED = SafetyNodeConfig().answer_wait
ARMS = {"twin": SHIPPED, "twin_without_wait": 0.0}
"""Begin of the figures' names -> ``answer_wait`` of the safety node [control steps]."""


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
def running(config: TwinBenchmark, answer_wait: float) -> Iterator[Twin]:
    """Start twin and nodes; end them on leaving."""
    values = {"learner": "false", "policy": config.policy}
    own = {"safety_node": (("answer_wait", answer_wait),)}
    twin = Twin(TwinSettings(config.work, config.domain, values, own))
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
    known = {(goal["arm"], goal["task"], goal["seed"]) for goal in found}
    wanted = [(task, 6000 + i) for i in range(1 if config.quick else config.goals) for task in TASKS]
    for arm, answer_wait in ARMS.items():
        if todo := [one for one in wanted if (arm, *one) not in known]:
            with running(config, answer_wait) as twin, kept.open("a") as out:
                before = _answers(twin)
                for task, seed in track(todo, arm, console=Console(file=sys.stderr)):
                    goal = twin.goal(task, seed)
                    after = _answers(twin)
                    found.append({"arm": arm, **goal, **{key: n - before[key] for key, n in after.items()}})
                    before = after
                    out.write(json.dumps(found[-1]) + "\n")
                    out.flush()
    return [goal for goal in found if (goal["task"], goal["seed"]) in wanted]


def _answers(twin: Twin) -> dict[str, int]:
    """Return how many answers of the policy the safety node had and how many were late, as it told last."""
    counts = {"answers": "chunks", "answers_late": "answers late"}
    return {name: int(twin.loop.value("safety_node", key) or 0) for name, key in counts.items()}


def figures(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return how many goals were reached, how often the verdict is right, and how soon a goal ends, in each arm."""
    return [row for arm in ARMS for row in _figures(arm, [goal for goal in found if goal["arm"] == arm])]


def _figures(arm: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    right = [(goal["outcome"] == "succeeded") == goal["truth"] for goal in found]
    judged = [goal for goal in found if goal["outcome"] == "succeeded"]
    for name, hits in (
        ("goals_succeeded", [goal["outcome"] == "succeeded" for goal in found]),
        ("verdict_right", right),
        ("false_success", [not goal["truth"] for goal in judged]),
    ):
        rate = wilson(sum(hits), max(1, len(hits)))
        rows.append(figure(f"{arm}_{name}", rate.rate, len(hits), (rate.low, rate.high)))
    answers = sum(goal["answers"] for goal in found)
    rate = wilson(sum(goal["answers_late"] for goal in found), max(1, answers))
    rows.append(figure(f"{arm}_answers_late", rate.rate, answers, (rate.low, rate.high)))
    if judged:
        times = sorted(goal["duration_s"] for goal in judged)
        rows.append(figure(f"{arm}_goal_p50_s", times[len(times) // 2], len(times)))
    return rows


def main(config: TwinBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(TwinBenchmark)
    where = machine()
    found = goals(config)
    table = Table("arm", "task", "goals", "succeeded", "verdict right", title="Goals that the memory judged")
    for arm in ARMS:
        for task in TASKS:
            those = [goal for goal in found if (goal["arm"], goal["task"]) == (arm, task)]
            right = sum((goal["outcome"] == "succeeded") == goal["truth"] for goal in those)
            done = sum(goal["outcome"] == "succeeded" for goal in those)
            table.add_row(arm, get_task(task).name, str(len(those)), str(done), str(right))
    Console(stderr=True).print(table)
    told = replace(config, work=Path(config.work.name))
    save_report(config.output, "twin", where, told, figures=figures(found), goals=found)


if __name__ == "__main__":
    main()
