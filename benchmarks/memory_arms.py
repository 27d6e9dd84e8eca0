"""The memories that the shipped one is compared with: demonstrations recorded, policies trained, by one command.

    python -m engram.benchmarks.memory_arms [--work runs/memory_arms] [--arms bank gru none ...]

All of them learn from one dataset, for equally many steps, by one recipe. They begin with what the shipped ``memory``
has learned to see and to do, and keep what it sees; the memory, with what is written into it and what is made of a
reading, is new in each of them, in the bank too: what differs between two arms is the kind of memory, with what it
reads of a step (docs/explanation/policy.md). An interrupted run continues where it was. The last line is JSON: the
folder of each arm's policy, as ``--others`` of :mod:`engram.benchmarks.memory_tasks` takes them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from safetensors.torch import load_file, save_file

from engram.benchmarks.memory_tasks import COLORED, UNCOLORED
from engram.core.arrays import positive_int
from engram.core.child import run_spawned
from engram.core.errors import unknown_name
from engram.policies.checkpoint import CARD, WEIGHTS, sha256
from engram.policies.opening import checkpoint_folder
from engram.policies.sequence_memory import MEMORIES
from engram.policies.training.train import decoded
from engram.policies.training.train import main as train
from engram.policies.training.train_config import TrainConfig
from engram.runtime.record import RecordConfig, record, recorder
from engram.sim.tasks import TASKS

RECALL = "model.recall."
"""Weights of the memory, of what is written into it, and of what is made of a reading."""
GRADIENT_STEPS = (1, 4, 8, 16)

ARMS: dict[str, dict[str, Any]] = {name: {"memory": name} for name in MEMORIES} | {
    f"bank_k{k}": {"memory": "bank", "gradient_steps": k} for k in GRADIENT_STEPS
}
"""What is set in each arm: its memory, and K of truncated backpropagation, a whole window if it is not named."""
RECIPE: dict[str, Any] = {
    "window": 32,
    "batch_size": 192,
    "freeze_perception": True,
    "frozen_draws": 1,
    "keyframes": 0.6,
    "foresight": 5.0,
    "learning_rate": 5e-4,
    "n_action_steps": 4,
    "model": (("adaptive_m", 0.04),),
}
"""What is the same in all arms. The shipped ``memory`` learnt by it too, but faster, and its perception with it at
first (:mod:`engram.benchmarks.memory_once`)."""


OPTIONS = {
    COLORED: ("", ":delay=5,first_color=1", ":delay=20,first_color=2", ":first_color=3"),
    UNCOLORED: ("", ":delay=5", ":delay=15", ":delay=20"),
    tuple(TASKS): ("",),
}
NAMES = tuple(task + option for tasks, options in OPTIONS.items() for task in tasks for option in options)
"""What is demonstrated: each memory task with several delays and colours, and those that need no memory."""
FIRST_SEED = 600_000
PART = 20


@dataclass(frozen=True)
class ArmsConfig:
    """What is trained."""

    arms: tuple[str, ...] = (
        *("bank", "gru", "none", "frame_stack", "first_frame", "hcam", "retrieval", "place", "fast_forgetful"),
        *("bank_k1", "bank_k4"),
    )
    """Kinds of memory; bank_k8 is the bank whose gradients pass through 8 writes only."""
    start_from: str = "engram"
    """A shipped policy, or a folder, to begin with but for its memory."""
    episodes: int = 40
    """Demonstrations of each task with each of its options."""
    steps: int = 5000
    """Optimiser steps of each arm."""
    workers: int = 2
    """Processes, of one torch thread each: arms that are trained side by side."""
    work: Path = Path("runs/memory_arms")
    """Folder of dataset and policies."""

    def __post_init__(self) -> None:
        for arm in self.arms:
            if arm not in ARMS:
                raise unknown_name("arm", arm, ARMS)
        for name in ("episodes", "steps", "workers"):
            positive_int(f"ArmsConfig.{name}", getattr(self, name))


def trained(config: ArmsConfig) -> dict[str, Path]:
    """Record and train what is missing; return the folder of each arm's policy."""
    source = checkpoint_folder(config.start_from)
    root = config.work / f"dataset-{_digest(NAMES, config.episodes, FIRST_SEED, recorder())}"
    start = config.work / f"start-{sha256(source / WEIGHTS)[:8]}"
    if not root.exists():
        demonstrate(root, NAMES, config.episodes, FIRST_SEED, config.workers)
    if not start.exists():
        _without_memory(source, start)
    wanted = {arm: _training(config, arm, root, start) for arm in config.arms}
    missing = [run for run in wanted.values() if not finished(run)]
    if missing:
        decoded(missing[0])  # in this process: those of the pool may not have the decoder's children
        for _ in run_spawned(train, missing, min(config.workers, len(missing)), tasks_per_child=1):
            pass
    return {arm: Path(run.out) / "policy" for arm, run in wanted.items()}


def _training(config: ArmsConfig, arm: str, root: Path, start: Path) -> TrainConfig:
    settings = {**RECIPE, **ARMS[arm], "steps": config.steps}
    out = config.work / f"{arm}-{_digest(settings, root.name, start.name)}"
    return TrainConfig(str(root), str(out), start_from=str(start), resume=(out / "resume").exists(), **settings)


def demonstrate(
    root: Path, tasks: tuple[str, ...], episodes: int, first_seed: int, workers: int, pushed: float = 0.0
) -> None:
    """Record demonstrations into ``root``, a dataset of its name; in a share ``pushed`` of them somebody pushes."""
    record(
        RecordConfig(
            str(root),
            f"engram/{root.name}",
            tasks,
            episodes=episodes,
            first_seed=first_seed,
            pushed=pushed,
            workers=workers,
            part_episodes=PART,
        )
    )


def _digest(*settings: Any) -> str:
    """Return the first digits of the sha256 of ``settings``: what was made with others has another name."""
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:8]


def finished(run: TrainConfig) -> bool:
    """Return whether ``run`` has come to its last step, or to the end of its time."""
    path = Path(run.out) / "policy" / CARD
    if not path.exists():
        return False
    card = json.loads(path.read_text())
    return bool(card["step"] >= (run.stop_after or run.steps) or 0 < run.minutes <= card["trained_minutes"])


def _without_memory(policy: Path, start: Path) -> None:
    """Copy ``policy`` to ``start`` without the weights of its memory, which are then new."""
    fresh = start.with_name(f"{start.name}.partial")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(policy, fresh, ignore=shutil.ignore_patterns(CARD))
    weights = load_file(policy / WEIGHTS)
    save_file({name: w for name, w in weights.items() if not name.startswith(RECALL)}, fresh / WEIGHTS)
    fresh.rename(start)


def main() -> None:
    """Train from the command line; the last line is JSON."""
    print(json.dumps({arm: str(policy) for arm, policy in trained(tyro.cli(ArmsConfig)).items()}))


if __name__ == "__main__":
    main()
