"""Does the search for a policy's weakest place find weaknesses that were planted?

    python -m engram.benchmarks.worst_case [--quick]

Each case is a policy that drives as ``base`` does, but stands still where one deviation of the robot (or two together)
lies in a range; :func:`planted_cases` draws the ranges from a seed. Its episodes are run for real. The same number of
episodes is spent by places drawn at random, confirmed the same way. Prints a table; the last line is JSON, which also
goes to benchmarks/results/worst_case.json.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from engram.benchmarks.report import RESULTS, figure, save_report
from engram.core.arrays import positive_int
from engram.core.child import spawned_pool
from engram.core.provenance import machine
from engram.core.statistics import wilson
from engram.runtime.factories import policy_folder
from engram.sim.gaps import DEVIATIONS, drawn_place
from engram.sim.tasks import get_task
from engram.validation.of_learner import contender
from engram.validation.trials import IDLE, NOMINAL, Contender, Trial, TrialStore, Wanted, at_place, run_all
from engram.validation.worst_case import (
    PLACES,
    SCENES,
    SEARCH_SEED,
    Run,
    WorstCase,
    find_worst,
    rounded,
    score,
    weakest,
)

SHARE, SHARE_OF_TWO = 0.15, 0.3
"""Of a deviation's range, at one end: where a weakness lies that one deviation makes, and that two make together."""


@dataclass(frozen=True)
class WorstCaseBenchmark:
    """What is measured."""

    quick: bool = False
    """Two cases."""
    cases: int = 10
    """Planted weaknesses; every fifth is made by two deviations together."""
    episodes: int = 200
    """Episodes of each search."""
    task: str = "reach"
    """What is tried."""
    workers: int = 1
    """Processes."""
    work: Path = Path("runs/worst_case")
    """Folder of finished episodes."""
    output: Path = RESULTS / "worst_case.json"
    """Where the JSON goes."""

    def __post_init__(self) -> None:
        for name in ("cases", "episodes", "workers"):
            positive_int(f"WorstCaseBenchmark.{name}", getattr(self, name))


Range = tuple[int, float, float]
"""Which deviation, from where to where of its range."""


def planted_cases(count: int) -> list[tuple[Range, ...]]:
    """Return the ranges in which each policy stands still."""
    cases = []
    for number in range(count):
        rng = np.random.default_rng([number, 27])
        two = number % 5 == 4
        width = SHARE_OF_TWO if two else SHARE
        which = rng.choice(len(DEVIATIONS), 2 if two else 1, replace=False)
        ends = rng.random(len(which)) < 0.5
        cases.append(tuple(
            (int(at), 1.0 - width, 1.0) if high else (int(at), 0.0, width) for at, high in zip(which, ends, strict=True)
        ))  # fmt: skip
    return cases


def fails(case: Sequence[Range], place: Sequence[float]) -> bool:
    """Whether the policy of ``case`` stands still at ``place``."""
    return all(low <= place[at] <= high for at, low, high in case)


def planted(case: Sequence[Range], store: TrialStore, pool: Executor) -> Run:
    """Return what runs the trials of the policy of ``case``."""

    def run(jobs: Sequence[Wanted]) -> list[Trial]:
        driven = []
        for who, task, seed in jobs:
            _, _, named = task.partition("@")
            place = [float(at) for at in named.split(",")] if named else drawn_place(seed)
            driven.append((Contender(IDLE) if fails(case, place) else who, task, seed))
        return list(run_all(driven, store, pool))

    return run


def random_worst(who: Contender, task: str, on: str, run: Run, episodes: int) -> WorstCase | None:
    """Do as :func:`find_worst` does, but try places that are drawn at random."""
    rng = np.random.default_rng(1)
    tried: dict[tuple[float, ...], float] = {}
    for number in range(episodes // 2 // SCENES):
        place = rounded(rng.random(len(DEVIATIONS)))
        seeds = [SEARCH_SEED + number // PLACES * SCENES + i for i in range(SCENES)]
        trials = run([(who, at_place(task, place), seed) for seed in seeds])
        tried[place] = sum(score(trial, get_task(task).max_steps) for trial in trials)
    return weakest(who, task, on, sorted(tried, key=tried.__getitem__)[:2], run, episodes)


def search(config: WorstCaseBenchmark) -> list[dict[str, Any]]:
    """Run both searches on every case; return what they found."""
    who, rows = contender(policy_folder("base")), []
    store = TrialStore(config.work)
    try:
        with spawned_pool(config.workers) as pool:
            cases = planted_cases(2 if config.quick else config.cases)
            for case in track(cases, "cases", console=Console(file=sys.stderr)):
                row: dict[str, Any] = {"planted": [(list(DEVIATIONS)[at], low, high) for at, low, high in case]}
                ways: dict[str, Callable[..., Any]] = {"search": find_worst, "random": random_worst}
                for way, find in ways.items():
                    found = find(who, config.task, NOMINAL, planted(case, store, pool), config.episodes)
                    row[way] = found is not None and fails(case, found.place)
                    row[f"{way}_told"] = "" if found is None else str(found)
                rows.append(row)
    finally:
        store.close()
    return rows


def main(config: WorstCaseBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(WorstCaseBenchmark)
    where = machine()
    rows = search(config)
    table = Table("planted", "search", "random", title=f"Found with {config.episodes} episodes")
    for row in rows:
        said = " and ".join(f"{name} in {low:g}..{high:g} of its range" for name, low, high in row["planted"])
        table.add_row(said, *("found" if row[way] else "missed" for way in ("search", "random")))
    Console(stderr=True, width=140).print(table)
    found = []
    for way, target in (("search", 0.9), ("random", None)):
        rate = wilson(sum(row[way] for row in rows), len(rows))
        told = ("" if target is None else f">= {target:g}", None if target is None else rate.rate >= target)
        found.append(figure(f"worst_case_found_by_{way}", rate.rate, rate.n, (rate.low, rate.high), *told))
    save_report(
        config.output, "worst_case", where, replace(config, work=Path(config.work.name)), figures=found, cases=rows
    )


if __name__ == "__main__":
    main()
