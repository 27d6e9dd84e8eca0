"""The same episodes in process and through the real nodes, in lock-step and in real time, undisturbed and pushed.

    python -m engram.benchmarks.through_nodes [--quick] [--policy engram]

The nodes are those of ``engram up sim`` with shipped settings. In real time the simulation waits for nobody: the policy
answers as late as it does. What is pushed is what the words name, once an episode. Finished parts are kept in
``work``: a run that was cut off goes on from there. Prints a table; the last line is JSON, which also goes to
benchmarks/results/through_nodes.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from engram.benchmarks.faults_loop import Loop, running
from engram.benchmarks.memory_tasks import Block, measure
from engram.benchmarks.memory_tasks_figures import Found, difference
from engram.benchmarks.policy_claims import PUSHABLE
from engram.benchmarks.report import figure, save_report
from engram.core.arrays import positive_int
from engram.core.provenance import machine
from engram.core.statistics import mean_rate, wilson
from engram.policies.checkpoint import fingerprint
from engram.policies.opening import checkpoint_folder
from engram.sim.tasks import each_once

RESULTS = Path(__file__).resolve().parent / "results" / "through_nodes.json"
IN_PROCESS, LOCK_STEP, REAL_TIME = "in process", "lock-step", "real time"
PUSHED_WORLD = "engram.sim.pushes:PushedWorkcell"
LOSS = 0.03
"""So much less than in process, at most."""
EPISODE_S = 300.0
"""Longest wait for an episode's outcome, wall clock."""


@dataclass(frozen=True)
class ThroughNodes:
    """What is measured."""

    quick: bool = False
    """Two episodes a task."""
    policy: str = "engram"
    """Shipped name or folder."""
    tasks: tuple[str, ...] = ("tabletop", "memory")
    """Tasks or suites."""
    pushed_tasks: tuple[str, ...] = PUSHABLE
    """Tasks that are run pushed, too."""
    episodes: int = 20
    """Episodes a task, seeds 0 and up."""
    modes: tuple[str, ...] = (LOCK_STEP, REAL_TIME)
    """Which: "lock-step", "real time"."""
    workers: int = 2
    """Processes that run the episodes in process."""
    domain: int = 44
    """ROS_DOMAIN_ID of the nodes; each set has the next."""
    work: Path = Path("runs/through_nodes")
    """Folder of finished parts, and of the nodes' logs."""
    output: Path = RESULTS
    """Where the JSON goes."""

    def __post_init__(self) -> None:
        for name in ("episodes", "workers"):
            positive_int(f"ThroughNodes.{name}", getattr(self, name))

    @property
    def count(self) -> int:
        """Episodes a task."""
        return 2 if self.quick else self.episodes


def in_process(config: ThroughNodes) -> Found:
    """Run the episodes in process; return the rate of each task, undisturbed and pushed."""
    arms = (
        (_arm(IN_PROCESS, False), each_once(config.tasks), False),
        (_arm(IN_PROCESS, True), config.pushed_tasks, True),
    )
    wanted = [
        Block(arm, config.policy, "", task, 0, config.count, pushed=pushed)
        for arm, tasks, pushed in arms
        for task in tasks
    ]
    return measure(wanted, config.work, config.workers)


def through_nodes(config: ThroughNodes, mode: str, pushed: bool, domain: int) -> dict[str, list[str]]:
    """Run the episodes through nodes in ``mode``; return the outcome of each episode of each task."""
    done = config.work / f"{mode}{'-pushed' if pushed else ''}-{fingerprint(checkpoint_folder(config.policy))}.json"
    told: dict[str, list[str]] = json.loads(done.read_text()) if done.exists() else {}
    tasks = config.pushed_tasks if pushed else each_once(config.tasks)
    todo = [(seed, task) for seed in range(config.count) for task in tasks if len(told.get(task, ())) <= seed]
    if not todo:
        return told
    values = {
        "viewer": "false",
        "learner": "false",
        "policy": config.policy,
        "lockstep": str(mode == LOCK_STEP).lower(),
    }
    if pushed:
        values["world"] = PUSHED_WORLD
    with running("sim", values, config.work / done.stem, domain) as loop:
        for seed, task in track(todo, f"{mode}{', pushed' if pushed else ''}", console=Console(file=sys.stderr)):
            told.setdefault(task, []).append(_outcome(loop, task, seed))
            done.write_text(json.dumps(told))
    return told


def _outcome(loop: Loop, task: str, seed: int) -> str:
    report = loop.episode(task, seed, EPISODE_S)
    return report if isinstance(report, str) else report.outcome


def _arm(mode: str, pushed: bool) -> str:
    return f"{mode}, pushed" if pushed else mode


def found_by(config: ThroughNodes, run: Callable[[ThroughNodes, str, bool, int], dict[str, list[str]]]) -> Found:
    """Return the rate of each task in each mode, ``run`` being :func:`through_nodes`."""
    found = in_process(config)
    for number, mode in enumerate(config.modes):
        for pushed in (False, True) if config.pushed_tasks else (False,):
            told = run(config, mode, pushed, config.domain + 2 * number + pushed)
            found[_arm(mode, pushed)] = {t: wilson(o.count("succeeded"), len(o)) for t, o in told.items()}
    return found


def figures(found: Found) -> list[dict[str, Any]]:
    """Return the means of ``found``, and what the way through the nodes costs."""
    means = {arm: mean_rate([*tasks.values()]) for arm, tasks in found.items() if tasks}
    rows = []
    for arm, mean in means.items():
        key = arm.replace(", ", "_").replace(" ", "_").replace("-", "_")
        rows.append(figure(f"success_{key}", mean.rate, mean.n, (mean.low, mean.high)))
        mode, _, pushed = arm.partition(", ")
        if mode != IN_PROCESS:
            value, low, high, n = difference(mean, means[_arm(IN_PROCESS, bool(pushed))])
            rows.append(figure(f"loss_{key}", 0.0 - value, n, (-high, -low), f"<= {LOSS:g}", value >= -LOSS))
    return rows


def table(found: Found) -> Table:
    """Return successes and episodes of each task in each mode."""
    shown = Table("task", *found, title="Successes / episodes")
    for task in dict.fromkeys(task for tasks in found.values() for task in tasks):
        cells = (tasks.get(task) for tasks in found.values())
        shown.add_row(task, *("" if rate is None else f"{rate.successes} / {rate.n}" for rate in cells))
    return shown


def main(config: ThroughNodes | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(ThroughNodes)
    where = machine()  # with the load before the measurement
    config.work.mkdir(parents=True, exist_ok=True)
    found = found_by(config, through_nodes)
    Console(width=160, stderr=True).print(table(found))
    told = replace(config, policy=Path(config.policy).name, work=Path(config.work.name))
    rows = {arm: {task: asdict(rate) for task, rate in tasks.items()} for arm, tasks in found.items()}
    save_report(config.output, "through_nodes", where, told, figures=figures(found), rows=rows)


if __name__ == "__main__":
    main()
