"""What a policy keeps of its tasks while it practises one after the other on the same robot.

    python -m engram.benchmarks.continual [--quick]

``base`` practises three tasks in a row on one twin, each until it is part of the weights (``engram improve``), and the
next begins with what the last one left. After each, the success of all of its tasks is measured on that twin, without
noise, on scenes that nobody practised on: the matrix R[i, j] of Lopez-Paz and Ranzato (2017, arXiv:1706.08840). Stages
that are finished are kept in ``work``. Prints the matrix; the last line is JSON, which also goes to
benchmarks/results/continual.json.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

from engram.app.improve import ImproveConfig, practise
from engram.benchmarks.report import RESULTS, figure, save_report
from engram.core.arrays import positive_int
from engram.core.durable import write_atomic
from engram.core.errors import InvalidInputError
from engram.core.provenance import machine
from engram.core.statistics import Rate

BEFORE = "before"
"""The stage at which nothing has been practised."""
LOSS = 0.02
"""So much less success, at most, at a task that is not practised."""

Matrix = dict[str, dict[str, Rate]]
"""Stage -> task -> success after it."""


@dataclass(frozen=True)
class ContinualBenchmark:
    """What is measured."""

    quick: bool = False
    """Ten episodes of practice and of each measurement."""
    tasks: tuple[str, ...] = ("pick_place", "push_to_mark", "stack")
    """What is practised, in this order."""
    on: str = "turned"
    """The twin."""
    policy: str = "base"
    """Where learning begins."""
    episodes: int = 100
    """Episodes of each practice."""
    measured: int = 100
    """Episodes of each measurement of a task."""
    seed: int = 0
    """Of scenes and trials."""
    work: Path = Path("runs/continual")
    """Folder of the practices."""
    output: Path = RESULTS / "continual.json"
    """Where the JSON goes."""

    def __post_init__(self) -> None:
        for name in ("episodes", "measured"):
            positive_int(f"ContinualBenchmark.{name}", getattr(self, name))
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise InvalidInputError(f"ContinualBenchmark.tasks: {', '.join(self.tasks)}, expected each once")


def stages(config: ContinualBenchmark) -> list[dict[str, Any]]:
    """Return the report of each practice; those that are finished are read."""
    n, episodes = (10, 10) if config.quick else (config.measured, config.episodes)
    policy, reports = config.policy, []
    for number, task in enumerate(config.tasks):
        kept = config.work / f"stage{number}.json"
        if not kept.exists():
            work = config.work / f"stage{number}"
            report = practise(
                ImproveConfig(task, config.on, policy, episodes, (0,), n, others=n, seed=config.seed, work=work)
            )
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(kept, json.dumps(report).encode())
        reports.append(dict(json.loads(kept.read_text())))
        policy = reports[-1]["policy"] or policy  # nothing was found: the next begins where this one did
    return reports


def matrix(reports: Sequence[Mapping[str, Any]]) -> Matrix:
    """Return the success at every task, before and after each practice."""
    found: Matrix = {}
    for place, report in enumerate(reports):
        task, curve = report["config"]["task"], report["curve"]
        for stage, at in ((BEFORE, 0), (task, -1)):
            if stage != BEFORE or place == 0:
                found[stage] = {task: _rate(curve[at]["success"])}
                found[stage] |= {name: _rate(rows[at]) for name, rows in report["others"].items()}
    return found


def _rate(told: Mapping[str, Any]) -> Rate:
    return Rate(**{name: told[name] for name in ("successes", "n", "rate", "low", "high")})


def figures(found: Matrix) -> list[dict[str, Any]]:
    """Return the matrix, and how much was lost most at a task while another one was practised."""
    names, rows = list(found), []
    for stage, rates in found.items():
        for task, rate in rates.items():
            rows.append(figure(f"continual_{stage}_{task}", rate.rate, rate.n, (rate.low, rate.high)))
    lost: dict[str, list[float]] = {"learnt": [], "other": []}
    for before, stage in itertools.pairwise(names):
        for task, rate in found[stage].items():
            if task != stage:
                learnt = task in names[: names.index(stage)]
                lost["learnt" if learnt else "other"].append(found[before][task].rate - rate.rate)
    n = min(rate.n for rates in found.values() for rate in rates.values())
    for kind, losses in lost.items():
        most = max(losses, default=0.0)
        rows.append(figure(f"continual_{kind}_lost_most", most, n, None, f"<= {LOSS:g}", most <= LOSS + 1e-9))
    return rows


def main(config: ContinualBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(ContinualBenchmark)
    where = machine()
    reports = stages(config)
    found = matrix(reports)
    tasks = list(found[BEFORE])
    table = Table("after practice of", *tasks, title=f"{config.policy} on {config.on}: success")
    for stage, rates in found.items():
        table.add_row(stage, *(f"{rates[task].rate:.2f}" for task in tasks))
    Console(stderr=True, width=120).print(table)
    practices = [{"task": one["config"]["task"], "corrections": one["corrections"]} for one in reports]
    save_report(config.output, "continual", where, config, figures=figures(found), practices=practices)


if __name__ == "__main__":
    main()
