"""The gate's test beside published ones: how many pairs of episodes until it is shown that a candidate is worse?

    python -m engram.benchmarks.gate_peers [--quick]

Peers are STEP (Snyder et al. 2025, arXiv:2503.10966), a near-optimal test for policies whose successes are independent,
and SAVI, its anytime-valid peer, both as their authors publish them (sequentialized-barnard-tests). All get the same
drawn successes of one task, the same error rate and the same largest number of pairs. Prints a table; the last line is
JSON, which also goes to benchmarks/results/gate_peers.json.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from engram.benchmarks.report import RESULTS, figure, save_report, slug
from engram.core.arrays import positive_int
from engram.core.betting import MeanTest
from engram.core.errors import EngramError
from engram.core.provenance import machine
from engram.core.statistics import wilson

PACKAGE = "sequentialized-barnard-tests"
ERROR, PAIRS = 0.05, 200
"""Error rate and largest number of pairs: STEP comes with its rule for these."""
CASES: dict[str, tuple[float, float, bool]] = {
    "30 points worse": (0.6, 0.9, False),
    "10 points worse": (0.8, 0.9, False),
    "30 points worse, same luck": (0.6, 0.9, True),
    "10 points worse, same luck": (0.8, 0.9, True),
    "equal": (0.9, 0.9, False),
    "equal, at one half": (0.5, 0.5, False),
}
"""Success rates of the candidate and of what drives; same luck: the better succeeds wherever the other does."""

Test = Callable[[np.ndarray, np.ndarray, int], int]
"""Successes of the candidate and of what drives (pairs,) bool, and a seed -> pairs until it is shown; 0: it is not."""


@dataclass(frozen=True)
class GatePeersBenchmark:
    """How often each candidate is judged."""

    quick: bool = False
    """50 runs of each."""
    runs: int = 500
    """Runs of each candidate."""
    seed: int = 0
    """Of the successes."""
    output: Path = RESULTS / "gate_peers.json"
    """Where the JSON goes."""

    def __post_init__(self) -> None:
        positive_int("GatePeersBenchmark.runs", self.runs)


def ours(new: np.ndarray, old: np.ndarray, seed: int) -> int:
    """Judge as the gate judges one task."""
    test = MeanTest(1.0)
    for number, loss in enumerate(old.astype(float) - new, 1):
        test.add(float(loss))
        if test.shown(ERROR):
            return number
    return 0


def peers() -> dict[str, Test]:
    """Return the published tests by name; raises EngramError where their package is not installed."""
    try:
        import sequentialized_barnard_tests as published
    except ImportError as error:
        raise EngramError(f"{PACKAGE} is not installed: make setup") from error
    worse = published.Hypothesis.P0LessThanP1
    shown = published.Decision.AcceptAlternative

    def run(test: Any) -> Test:
        def judge(new: np.ndarray, old: np.ndarray, seed: int) -> int:
            test.random_seed = seed
            test.reset()
            for number, (mine, theirs) in enumerate(zip(new, old, strict=True), 1):
                if test.step(int(mine), int(theirs)).decision == shown:
                    return number
            return 0

        return judge

    return {
        "STEP": run(published.StepTest(worse, PAIRS, ERROR)),
        "SAVI": run(published.SaviTest(worse, ERROR)),
    }


def drawn(case: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the successes of a candidate and of what drives (pairs,)."""
    candidate, approved, same_luck = CASES[case]
    rng = np.random.default_rng(seed)
    luck = rng.random(PAIRS)
    return luck < candidate, (luck if same_luck else rng.random(PAIRS)) < approved


def figures(config: GatePeersBenchmark) -> list[dict[str, Any]]:
    """Return the share of runs in which it is shown, and the mean number of pairs, of each test and candidate."""
    tests, rows = {"Engram": ours, **peers()}, []
    runs = 50 if config.quick else config.runs
    for number, case in enumerate(CASES):
        seeds = [config.seed + 1_000_000 * number + run for run in range(runs)]
        for name, test in tests.items():
            took = np.array([test(*drawn(case, seed), seed) for seed in seeds])
            rate = wilson(int((took > 0).sum()), runs)
            target, met = (f"<= {ERROR}", rate.rate <= ERROR) if case.startswith("equal") else (None, None)
            what = f"{name.lower()}_{slug(case)}"
            rows.append(figure(f"shown_{what}", rate.rate, runs, (rate.low, rate.high), target, met, 4))
            pairs = np.where(took > 0, took, PAIRS)
            half = 1.96 * float(pairs.std()) / runs**0.5
            rows.append(
                figure(f"pairs_{what}", pairs.mean(), runs, (pairs.mean() - half, pairs.mean() + half), digits=1)
            )
    return rows


def main(config: GatePeersBenchmark | None = None) -> None:
    """Judge, print, save."""
    config = config or tyro.cli(GatePeersBenchmark)
    where, rows = machine(), figures(config)
    table = Table("figure", "value", "95 % interval", "n", "target", title="Shown to be worse")
    for row in rows:
        table.add_row(row["name"], f"{row['value']:g}", str(row["interval"]), str(row["n"]), row["target"] or "")
    Console(stderr=True, width=120).print(table)
    save_report(config.output, "gate_peers", where, config, figures=rows, peers=f"{PACKAGE} {version(PACKAGE)}")


if __name__ == "__main__":
    main()
