"""What a policy keeps of its tasks while it practises one after the other on the same robot.

    python -m engram.benchmarks.continual [--quick]

``base`` practises three tasks in a row on one twin, each until it is part of the weights (``engram improve``), and the
next begins with what the last one left. After each, the success of all of its tasks is measured on that twin, without
noise, on scenes that nobody practised on: the matrix R[i, j] of Lopez-Paz and Ranzato (2017, arXiv:1706.08840). Stages
that are finished are kept in ``work``, and those of another run are refused. Prints the matrix; the last line is JSON,
which also goes to benchmarks/results/continual.json.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
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
from engram.core.errors import DAMAGED, InvalidInputError, StoreError
from engram.core.motion_correction import MotionCorrection
from engram.core.provenance import machine
from engram.core.statistics import Rate

BEFORE = "before"
"""The stage at which nothing has been practised."""
FIXED = ("task", "on", "policy", "episodes", "measured", "seed")
"""What makes a practice another one, of what its report says of it."""
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
    """Return the report of each practice; those that are finished are read.

    Raises:
        InvalidInputError: one of these is of another run.
        StoreError: one of these cannot be read.
    """
    n, episodes = (10, 10) if config.quick else (config.measured, config.episodes)
    policy, reports = config.policy, []
    for number, task in enumerate(config.tasks):
        kept, work = config.work / f"stage{number}.json", config.work / f"stage{number}"
        wanted = ImproveConfig(task, config.on, policy, episodes, (0,), n, others=n, seed=config.seed, work=work)
        if not kept.exists():
            write_atomic(kept, json.dumps(practise(wanted)).encode())
        reports.append(_read(kept, wanted))
        policy = reports[-1]["policy"] or policy  # nothing was found: the next begins where this one did
    return reports


def _read(kept: Path, wanted: ImproveConfig) -> dict[str, Any]:
    """Return the report in ``kept``, which has to be of the practice that is ``wanted``."""
    try:
        report = dict(json.loads(kept.read_text()))
        found = {name: report["config"][name] for name in FIXED}
    except DAMAGED as error:
        raise StoreError(f"{kept}: cannot be read: {error!r}; delete it to practise anew") from error
    about = {name: getattr(wanted, name) for name in FIXED} | {"on": Path(wanted.on).name}
    if other := [f"{name} {found[name]}, not {about[name]}" for name in FIXED if found[name] != about[name]]:
        raise InvalidInputError(f"{kept}: of another run, with {'; '.join(other)}; choose another folder with --work")
    return report


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


def changed(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the tasks whose practice found something, so that the policy is another one since."""
    return [report["config"]["task"] for report in reports if report["policy"]]


def figures(found: Matrix, changed: Collection[str]) -> list[dict[str, Any]]:
    """Return the matrix, and how much was lost most at a task while another one was practised.

    Nothing is judged where no practice has ``changed`` the policy that could have lost it: that nothing was lost then
    shows nothing.
    """
    names, rows = list(found), []
    for stage, rates in found.items():
        for task, rate in rates.items():
            rows.append(figure(f"continual_{stage}_{task}", rate.rate, rate.n, (rate.low, rate.high)))
    lost: dict[str, list[float]] = {"learnt": [], "other": []}
    judged = set()
    for before, stage in itertools.pairwise(names):
        for task, rate in found[stage].items():
            if task != stage:
                kind = "learnt" if task in names[: names.index(stage)] else "other"
                lost[kind].append(found[before][task].rate - rate.rate)
                if stage in changed and (kind == "other" or task in changed):
                    judged.add(kind)
    n = min(rate.n for rates in found.values() for rate in rates.values())
    for kind, losses in lost.items():
        most = max(losses, default=0.0)
        met = most <= LOSS + 1e-9 if kind in judged else None
        rows.append(figure(f"continual_{kind}_lost_most", most, n, None, f"<= {LOSS:g}", met))
    return rows


def _taken(report: Mapping[str, Any]) -> list[dict[str, float]]:
    """Return the corrections that became part of the weights: a search may also find none."""
    return [one for one in report["corrections"] if MotionCorrection(**one) != MotionCorrection()]


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
    practices = [{"task": one["config"]["task"], "corrections": _taken(one)} for one in reports]
    save_report(
        config.output, "continual", where, config, figures=figures(found, changed(reports)), practices=practices
    )


if __name__ == "__main__":
    main()
