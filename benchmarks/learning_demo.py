"""What ``LEARNING=1 make demo`` comes to: goals before the robot learnt and afterwards, and the minutes between.

    python -m engram.benchmarks.learning_demo [--quick]

Runs ``engram demo --learning`` without the page, in which nothing tells the nodes how the robot differs; the scenes of
the goals are the same before and afterwards. Prints a table; the last line is JSON, which also goes to
benchmarks/results/learning_demo.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

from engram.benchmarks.report import RESULTS, figure, save_report
from engram.core.errors import EngramError
from engram.core.provenance import machine
from engram.core.statistics import wilson

BETTER = 0.8
"""Share of the goals afterwards that a robot should reach which failed at first."""
WITHIN_MIN = 15.0
"""Minutes from the first goal until something better drives."""


@dataclass(frozen=True)
class LearningDemoBenchmark:
    """What is run."""

    quick: bool = False
    """Four goals a part."""
    goals: int = 20
    """Before the robot learns, and again afterwards."""
    task: str = "pick_place"
    """What it learns."""
    on: str = "front_moved"
    """How it differs."""
    seed: int = 500
    """First scene."""
    domain: int = 48
    """ROS_DOMAIN_ID of the nodes."""
    output: Path = RESULTS / "learning_demo.json"
    """Where the JSON goes."""


def shown(config: LearningDemoBenchmark) -> dict[str, Any]:
    """Return what the demo said of learning.

    Raises:
        EngramError: it did not work.
    """
    goals = 4 if config.quick else config.goals
    words = ["demo", "--learning", "--headless", "--episodes", str(goals), "--seed", str(config.seed)]
    words += ["--learning-task", config.task, "--learning-on", config.on, "--domain", str(config.domain)]
    with TemporaryDirectory(prefix="engram-learning-demo-") as folder:
        command = [sys.executable, "-m", "engram.app.cli", *words, "--log-dir", folder]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    told: dict[str, Any] = {"problem": "it said nothing"}
    if done.stdout.strip():
        told = json.loads(done.stdout.splitlines()[-1])
    if told["problem"]:
        raise EngramError(f"engram demo --learning: {told['problem']}")
    return dict(told["learning"])


def figures(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the share of goals that were reached before and afterwards, and the minutes until then; -1: never."""
    rows = []
    for name, target in (("before", None), ("after", f">= {BETTER}")):
        successes, goals = told[name]
        rate = wilson(successes, max(1, goals))
        met = None if target is None else rate.rate >= BETTER
        rows.append(figure(f"learning_demo_{name}", rate.rate, goals, (rate.low, rate.high), target=target, met=met))
    minutes = -1.0 if told["minutes"] is None else told["minutes"]
    met = 0.0 <= minutes <= WITHIN_MIN
    rows.append(figure("learning_demo_minutes", minutes, 1, target=f"<= {WITHIN_MIN:g}", met=met))
    return rows


def main(config: LearningDemoBenchmark | None = None) -> None:
    """Run, print, save."""
    config = config or tyro.cli(LearningDemoBenchmark)
    where, told = machine(), shown(config)
    rows = figures(told)
    table = Table("", "value", "n", "target", title=f"{config.task} on {config.on}")
    for row in rows:
        table.add_row(row["name"], f"{row['value']:.3g}", str(row["n"]), str(row["target"] or ""))
    Console(stderr=True).print(table)
    save_report(config.output, "learning_demo", where, config, figures=rows, learning=told)


if __name__ == "__main__":
    main()
