"""The policy ``engram`` by one command: demonstrations recorded and merged, one training.

The shipped one was then taught other light by ``engram relight``; its card has those commands.

    python -m engram.benchmarks.train_engram [--work runs/engram]

Records demonstrations of all tasks with what the scene graph offers at each step, merges them, and trains a bank and
the reading of memory/context from the weights in ``starts/engram`` on: first everything learns, then perception is
frozen. What was cut off goes on where it was; what other code recorded is left aside. The last line is the policy's
folder, for ``engram eval FOLDER --tasks all``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from engram.benchmarks.memory_arms import PART, finished
from engram.benchmarks.memory_once import RUN as REMEMBERING
from engram.benchmarks.memory_tasks import COLORED, UNCOLORED
from engram.core.arrays import positive_int
from engram.core.errors import InvalidInputError
from engram.policies.training.train import main as train
from engram.policies.training.train_config import TrainConfig
from engram.runtime.datasets import MergeConfig, merge
from engram.runtime.record import RecordConfig, record, recorder
from engram.sim.tasks import TASKS, UNSEEN_TASKS

VARIATIONS: dict[tuple[str, ...], tuple[str, ...]] = {
    COLORED: (
        *("", ":delay=5,first_color=1", ":delay=20,first_color=2,distractors=2", ":first_color=3"),
        *(":delay=40,first_color=4,distractors=4", ":delay=15,first_color=5"),
    ),
    UNCOLORED: ("", ":delay=5", ":delay=20,distractors=2", ":delay=15", ":delay=40,distractors=4", ":delay=10"),
    tuple(UNSEEN_TASKS): (
        *("", ":alternatives=2,first_color=2", ":alternatives=4,first_color=4,delay=5,distractors=3"),
        *(":alternatives=5,first_color=6,delay=20", ":alternatives=7,first_color=3,distractors=6,delay=40"),
        ":alternatives=6,first_color=7,delay=15",
    ),
}
"""How each task is varied. What is kept for the evaluation beyond training: held-out words, longer delays, more things
and most alternatives."""


@dataclass(frozen=True)
class Recording:
    """Demonstrations of some tasks."""

    tasks: tuple[str, ...]
    episodes: int
    """Of each task."""
    first_seed: int
    pushed: float = 0.0
    """Share in which somebody pushes what the robot is after."""
    randomise_looks: bool = False


def varied(tasks: tuple[str, ...], among: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return ``tasks``, one of VARIATIONS, each with all its options; with ``among`` only those."""
    return tuple(task + options for task in among or tasks for options in VARIATIONS[tasks])


LONGER: dict[tuple[str, ...], tuple[str, ...]] = {
    COLORED: ("put_block_back", "reopen_drawer", "change_food"),
    UNCOLORED: ("stop_cube", "seq_push_buttons"),
}
"""Memory tasks that need more demonstrations than the others."""


RECORDINGS = {
    "colored": Recording(varied(COLORED), 12, 1_000_000),
    "uncolored": Recording(varied(UNCOLORED), 12, 1_100_000),
    "longer": Recording(tuple(spec for tasks, among in LONGER.items() for spec in varied(tasks, among)), 18, 2_300_000),
    "unseen": Recording(varied(tuple(UNSEEN_TASKS)), 96, 2_200_000),
    "plain": Recording(tuple(TASKS), 300, 1_300_000, pushed=0.5),
    "looks": Recording((*TASKS, *COLORED, *UNCOLORED, *UNSEEN_TASKS), 12, 1_400_000, 0.5, randomise_looks=True),
}
START = Path(__file__).resolve().parent / "starts" / "engram"
"""Weights that 88 minutes of two cores have made of ``memory`` by an earlier state of this command; see their card."""
SEE_SHARE = 0.4
"""Share of the first part's steps that are done: perception is frozen while the learning rate is still high. What is
kept are averaged weights."""
TABLETOP = (("stack", 5.0), ("push_to_mark", 3.0), ("pick_place", 2.5), ("reach", 2.0), ("open_drawer", 1.2))
MEMORY = (
    *(("stop_cube", 2.0), ("put_block_back", 1.5), ("count_presses", 1.5), ("seq_push_buttons", 1.5)),
    *(("intercept_grab", 1.2), ("remember_color", 1.2), ("reopen_drawer", 1.2)),
)
ALIKE: dict[str, Any] = {
    **REMEMBERING,
    "model": (("adaptive_m", 0.02), ("context_ranks", 16), ("context_places", 4)),
    "memory_dropout": 0.33,
}
"""As ``memory`` was trained, but told the order of memory/context and quicker to look again. The bank is withheld at a
third of the observations, because it would learn by heart what memory/context tells (decision 26)."""
SEE: dict[str, Any] = {
    **ALIKE,
    "freeze_perception": False,
    "perception_share": 0.0,
    "memory_dropout": 0.5,
    "emphasis": (*TABLETOP, ("press_button", 1.2), ("touch_unseen", 3.0), ("place_unseen", 3.0), *MEMORY),
}
"""First everything learns, and half of the observations are without the bank: memory/context is to be read before the
bank has learnt anything by heart."""
LOOK_UP: dict[str, Any] = {
    **ALIKE,
    "perception_share": 0.0,
    "frozen_draws": 3,
    "learning_rate": 7e-4,
    "emphasis": (*TABLETOP, ("press_button", 1.2), ("touch_unseen", 3.0), ("place_unseen", 3.0), *MEMORY),
}
"""Then perception is frozen, and a third is of what is out of view."""


@dataclass(frozen=True)
class EngramConfig:
    """How much is recorded and trained."""

    share: float = 1.0
    """Of the demonstrations; less for a smaller version of the run."""
    see_steps: int = 6_600
    """Optimiser steps that the learning rate of the first part is for; it ends after two fifths of them."""
    steps: int = 15_000
    """Optimiser steps of the second part, perception frozen."""
    minutes: float = 0.0
    """End the second part sooner, when it has taken so long; 0 = do not."""
    start_from: str = str(START)
    """Shipped policy, or folder, to begin with."""
    seed: int = 0
    """Of the training."""
    workers: int = 2
    """Processes that record."""
    work: Path = Path("runs/engram")
    """Folder of recordings and policy."""
    record_only: bool = False
    """Train nothing; the last line tells the folder of the dataset as JSON."""

    def __post_init__(self) -> None:
        for name in ("see_steps", "steps", "workers"):
            positive_int(f"EngramConfig.{name}", getattr(self, name))
        if not 0.0 < self.share <= 1.0:
            raise InvalidInputError(f"EngramConfig.share: {self.share}, expected above 0, at most 1")


def recorded(config: EngramConfig) -> Path:
    """Record and merge what is missing; return the folder of the dataset."""
    kind = f"{config.share:g}-{recorder(reconstruction=True)}"
    roots = [config.work / f"{name}-{kind}" for name in RECORDINGS]
    for root, recording in zip(roots, RECORDINGS.values(), strict=True):
        if not root.exists():
            record(recording_config(recording, root, config))
    if not (whole := config.work / f"dataset-{kind}").exists():
        merge(MergeConfig(tuple(map(str, roots)), str(whole), "engram/all"))
    return whole


def recording_config(recording: Recording, root: Path, config: EngramConfig) -> RecordConfig:
    """Return how ``recording`` is recorded into ``root``, a dataset of its name."""
    return RecordConfig(
        str(root),
        f"engram/{root.name}",
        recording.tasks,
        episodes=max(1, round(config.share * recording.episodes)),
        first_seed=recording.first_seed,
        pushed=recording.pushed,
        randomise_looks=recording.randomise_looks,
        workers=config.workers,
        part_episodes=PART,
        reconstruction=True,
    )


def trained(config: EngramConfig) -> Path:
    """Record, merge and train what is missing; return the folder of the policy."""
    dataset = recorded(config)
    first, second = (config.work / f"{part}{config.seed}-{dataset.name}" for part in ("see", "seed"))
    stop = max(1, round(SEE_SHARE * config.see_steps))
    parts = (
        (first, config.start_from, {"steps": config.see_steps, "stop_after": stop, **SEE}),
        (second, str(first / "policy"), {"steps": config.steps, "minutes": config.minutes, **LOOK_UP}),
    )
    for out, start, settings in parts:
        resume = (out / "resume").exists()
        run = TrainConfig(str(dataset), str(out), start_from=start, seed=config.seed, resume=resume, **settings)
        if not finished(run):
            train(run)
    return second / "policy"


def main() -> None:
    """Train from the command line; the last line is the policy's folder."""
    config = tyro.cli(EngramConfig)
    print(json.dumps({"dataset": str(recorded(config))}) if config.record_only else trained(config))


if __name__ == "__main__":
    main()
