"""From ``base`` to a policy that remembers in one run: 85 minutes on two cores, some more on slow ones.

    python -m engram.benchmarks.memory_once [--work runs/memory_once]

Records demonstrations of the twelve memory tasks and the six others (30 to 75 minutes, two processes), merges them and
trains a bank: for 28 % of the steps everything learns, then perception is frozen. What was cut off goes on where
it was; what other code recorded is left aside. The last line is the policy's folder, for ``engram eval FOLDER --tasks
memory`` or ``--policy`` of :mod:`engram.benchmarks.memory_tasks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from engram.benchmarks.memory_arms import FIRST_SEED, NAMES, RECIPE, demonstrate, finished
from engram.core.arrays import positive_int
from engram.policies.training.train import main as train
from engram.policies.training.train_config import TrainConfig
from engram.runtime.datasets import MergeConfig, merge
from engram.runtime.record import recorder
from engram.sim.tasks import TASKS

RECORDINGS = {
    "first": (NAMES, 40, FIRST_SEED, 0.0),
    "more": (NAMES, 40, 700_000, 0.0),
    "plain": (tuple(TASKS), 200, 710_000, 0.5),
}
"""Tasks, episodes of each, first seed, and the share in which somebody pushes what the robot is after. The first is
what :mod:`engram.benchmarks.memory_arms` learns from."""
RUN: dict[str, Any] = {
    **RECIPE,
    "memory": "bank",
    "perception_share": 0.28,
    "learning_rate": 1e-3,
    "processes": 2,
    "emphasis": (
        *(("put_block_back", 2.0), ("intercept_grab", 1.5), ("count_presses", 2.0), ("seq_push_buttons", 2.0)),
        *(("stack", 2.5), ("push_to_mark", 2.0)),
        *(("remember_color", 1.5), ("reopen_drawer", 1.5), ("stop_cube", 2.0)),
    ),
}
"""Drawn oftener is what a run without that was weak at."""


@dataclass(frozen=True)
class OnceConfig:
    """How much is recorded and trained."""

    steps: int = 10_000
    """Optimiser steps."""
    workers: int = 2
    """Processes that record."""
    work: Path = Path("runs/memory_once")
    """Folder of recordings and policy."""

    def __post_init__(self) -> None:
        for name in ("steps", "workers"):
            positive_int(f"OnceConfig.{name}", getattr(self, name))


def trained(config: OnceConfig) -> Path:
    """Record, merge and train what is missing; return the folder of the policy."""
    roots = {name: config.work / f"{name}-{recorder()}" for name in RECORDINGS}
    for name, (tasks, episodes, first_seed, pushed) in RECORDINGS.items():
        if not roots[name].exists():
            demonstrate(roots[name], tasks, episodes, first_seed, config.workers, pushed)
    if not (whole := config.work / f"dataset-{recorder()}").exists():
        merge(MergeConfig(tuple(map(str, roots.values())), str(whole), "engram/tabletop18"))
    out = config.work / f"bank-{recorder()}"
    resume = (out / "resume").exists()
    run = TrainConfig(str(whole), str(out), start_from="base", steps=config.steps, resume=resume, **RUN)
    if not finished(run):
        train(run)
    return out / "policy"


def main() -> None:
    """Train from the command line; the last line is the policy's folder."""
    print(trained(tyro.cli(OnceConfig)))


if __name__ == "__main__":
    main()
