"""Error rates and length of the gate's sequential test, on drawn successes and progress of six tasks.

    python -m engram.benchmarks.gate [--quick]

Candidates whose true success rates are known are judged ten thousand times each, as ``engram validate`` would: in
rounds of four scenes. Beside it stands the length of a test of fixed length (a paired z-test of each task, at the same
error rates, planned with the true variance). Prints a table; the last line is JSON, which also goes to
benchmarks/results/gate.json.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from scipy.stats import norm

from engram.benchmarks.report import RESULTS, figure, save_report, slug
from engram.core.betting import SHARES, WEIGHTS, MeanTest
from engram.core.provenance import machine
from engram.core.statistics import wilson
from engram.validation.gate import GAIN_DIGITS, GateConfig
from engram.validation.validate import ROUND

TASKS = 6
POWER = 0.9
"""Share of the true improvements that the test of fixed length is planned to promote."""


@dataclass(frozen=True)
class Case:
    """A candidate and what drives, with their true success rates."""

    name: str
    candidate: tuple[float, ...]
    approved: tuple[float, ...]
    same_luck: bool = False
    """The scene alone decides: the better of the two succeeds where the other does. Else they are independent."""
    far: tuple[float, float] = (0.5, 0.5)
    """Mean progress of what fails on the first task: of the candidate, and of what drives; elsewhere 0.5."""

    @property
    def gain(self) -> np.ndarray:
        """Difference of success (tasks,)."""
        return np.subtract(self.candidate, self.approved)

    @property
    def progress_gain(self) -> np.ndarray:
        """Difference of mean progress (tasks,)."""
        means = [
            np.array(rates) + (1 - np.array(rates)) * np.array([far, *[0.5] * (TASKS - 1)])
            for rates, far in zip((self.candidate, self.approved), self.far, strict=True)
        ]
        return means[0] - means[1]

    @property
    def worst(self) -> float:
        """The smallest difference."""
        return float(min(self.gain.min(), self.progress_gain.min()))


def _six(rate: float, first: float | None = None) -> tuple[float, ...]:
    return (rate if first is None else first, *(rate,) * (TASKS - 1))


CASES = (
    Case("one task 10 points worse", _six(0.9, 0.8), _six(0.9)),
    Case("one task 10 points worse, same luck", _six(0.9, 0.8), _six(0.9), same_luck=True),
    Case("every task 10 points worse", _six(0.8), _six(0.9)),
    Case("one task 30 points worse", _six(0.9, 0.6), _six(0.9)),
    Case(
        "one task never done, but less far, same luck", _six(0.9, 0.0), _six(0.9, 0.0), same_luck=True, far=(0.4, 0.6)
    ),
    Case("does nothing", _six(0.0), _six(0.9)),
    Case("equal", _six(0.9), _six(0.9)),
    Case("equal, same luck", _six(0.9), _six(0.9), same_luck=True),
    Case("every task 10 points better", _six(0.95), _six(0.85)),
    Case("every task 10 points better, same luck", _six(0.95), _six(0.85), same_luck=True),
    Case("every task 30 points better", _six(0.9), _six(0.6)),
)
"""Promoting one that is worse by the margin is a mistake; the first three are just so much worse."""
SPREAD = 0.3
"""The progress of what fails lies so far around its mean."""


@dataclass(frozen=True)
class GateBenchmark:
    """How often each candidate is judged."""

    quick: bool = False
    """200 runs of each."""
    runs: int = 10_000
    """Runs of each candidate."""
    seed: int = 0
    """Of the outcomes."""
    output: Path = RESULTS / "gate.json"
    """Where the JSON goes."""


class _Tests:
    """Many of :class:`MeanTest` at once, (runs, tasks)."""

    def __init__(self, shape: tuple[int, int], most_lost: float) -> None:
        self._bets = np.array(SHARES) / most_lost
        self._logs = np.broadcast_to(np.log(WEIGHTS), (*shape, len(WEIGHTS))).copy()
        self.largest = np.zeros(shape)

    def add(self, numbers: np.ndarray, which: np.ndarray) -> None:
        self._logs[which] += np.log1p(self._bets * numbers[which][:, None])
        self.largest[which] = np.maximum(self.largest[which], np.logaddexp.reduce(self._logs[which], axis=-1))

    def shown(self, error: float) -> np.ndarray:
        return self.largest >= -math.log(error)


def judge(
    new: np.ndarray, old: np.ndarray, new_progress: np.ndarray, old_progress: np.ndarray, config: GateConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the gate decides of many candidates, and on how many pairs of episodes.

    Args:
        new: successes of the candidates (runs, tasks, budget) bool.
        old: of what drives, in the same scenes.
        new_progress: how near each came to success, 0 to 1.
        old_progress: of what drives.
        config: how strict the gate is.

    Returns:
        (runs,) 1 = promoted, -1 = rejected, 0 = not shown; and (runs,) pairs.
    """
    runs, tasks, budget = new.shape
    margins = (config.margin, config.progress_margin)
    not_worse = [_Tests((runs, tasks), 1.0 - margin) for margin in margins]  # on successes, on progress
    worse = [_Tests((runs, tasks), 1.0) for _ in margins]
    safe = MeanTest(1.0 - config.breach_margin)  # nobody breaches a limit here
    while not safe.shown(config.false_promotion):
        safe.add(config.breach_margin)
    decided, pairs = np.zeros(runs, int), np.zeros(runs, int)
    going = np.ones(runs, bool)
    for at in range(0, budget, ROUND):
        passed = np.all([test.shown(config.false_promotion) for test in not_worse], axis=0)
        wanted = going[:, None] & (~passed | passed.all(1, keepdims=True))
        for scene in range(at, min(at + ROUND, budget)):
            more = np.round(new_progress[..., scene] - old_progress[..., scene], GAIN_DIGITS)
            gains = (new[..., scene].astype(float) - old[..., scene], more)
            for of, (gain, margin) in enumerate(zip(gains, margins, strict=True)):
                not_worse[of].add(gain + margin, wanted)
                worse[of].add(-gain, wanted)
            pairs += wanted.sum(1)
        rejected = np.any([test.shown(config.false_rejection / (2 * tasks + 1)) for test in worse], axis=(0, 2))
        promoted = (
            np.all([test.shown(config.false_promotion) for test in not_worse], axis=(0, 2))
            & (pairs >= safe.n)
            & ~rejected
        )
        decided[going & rejected], decided[going & promoted] = -1, 1
        going &= ~(rejected | promoted)
    return decided, pairs


def drawn(case: Case, runs: int, budget: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return successes (runs, tasks, budget) of the candidate and of what drives, and their progress."""
    rng = np.random.default_rng(seed)
    shape = (runs, TASKS, budget)
    luck = rng.random(shape)
    other = luck if case.same_luck else rng.random(shape)
    new, old = luck < np.array(case.candidate)[:, None], other < np.array(case.approved)[:, None]
    luck = rng.uniform(-SPREAD, SPREAD, shape)
    other = luck if case.same_luck else rng.uniform(-SPREAD, SPREAD, shape)
    far = [np.array([first, *[0.5] * (TASKS - 1)])[:, None] for first in case.far]
    return new, old, np.where(new, 1.0, far[0] + luck), np.where(old, 1.0, far[1] + other)


def fixed_length(case: Case, config: GateConfig) -> int:
    """Return how many pairs, over all tasks, a test of fixed length takes that promotes ``case`` with ``POWER``."""
    new, old = np.array(case.candidate), np.array(case.approved)
    apart = np.abs(new - old)
    variance = apart * (1 - apart) if case.same_luck else new * (1 - new) + old * (1 - old)
    z = norm.isf(config.false_promotion) + norm.ppf(POWER ** (1 / TASKS))
    need = z**2 * variance / (case.gain + config.margin) ** 2
    return int(TASKS * max(1, math.ceil(need.max())))


def figures(config: GateBenchmark) -> list[dict[str, Any]]:
    """Return the figures of every case."""
    strict, rows = GateConfig(), []
    runs = 200 if config.quick else config.runs
    for number, case in enumerate(CASES):
        new, old, far, before = drawn(case, runs, strict.budget, config.seed + number)
        decided, pairs = judge(new, old, far, before, strict)
        name = slug(case.name)
        if case.gain.min() >= 0 > case.worst:
            without, _ = judge(new, old, new.astype(float), old.astype(float), strict)
            rate = wilson(int((without == 1).sum()), runs)
            rows.append(figure(f"successes_alone_promote_{name}", rate.rate, runs, (rate.low, rate.high), digits=4))
        for what, code in (("promoted", 1), ("rejected", -1)):
            rate = wilson(int((decided == code).sum()), runs)
            target = met = None
            if what == "promoted" and case.worst <= -strict.margin + 1e-9:
                target, met = f"<= {strict.false_promotion}", rate.rate <= strict.false_promotion
            elif what == "rejected" and case.worst >= 0:
                target, met = f"<= {strict.false_rejection}", rate.rate <= strict.false_rejection
            elif what == "promoted" and case.gain.min() >= 0.1 - 1e-9:
                target, met = f">= {POWER}", rate.rate >= POWER
            rows.append(figure(f"{what}_{name}", rate.rate, runs, (rate.low, rate.high), target, met, 4))
        rows.append(figure(f"pairs_{name}", float(pairs.mean()), runs, digits=1))
        if case.gain.min() > 0:
            share = float(pairs.mean()) / fixed_length(case, strict)
            rows.append(figure(f"length_{name}", share, runs, target="<= 0.5", met=share <= 0.5))
    return rows


def main(config: GateBenchmark | None = None) -> None:
    """Judge, print, save."""
    config = config or tyro.cli(GateBenchmark)
    where, rows = machine(), figures(config)
    table = Table("figure", "value", "95 % interval", "n", "target", title="The gate's test")
    for row in rows:
        ends = f"{row['interval'][0]:.4f}..{row['interval'][1]:.4f}" if row["interval"] else ""
        table.add_row(row["name"], f"{row['value']:g}", ends, str(row["n"]), row["target"] or "")
    Console(stderr=True, width=120).print(table)
    save_report(config.output, "gate", where, config, figures=rows)


if __name__ == "__main__":
    main()
