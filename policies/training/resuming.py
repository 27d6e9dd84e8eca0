"""Checks that a resumed training continues with the same samples and settings."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engram.core.errors import DAMAGED, InvalidInputError, WeightsError
from engram.core.provenance import dataset_hash
from engram.policies.checkpoint import fingerprint
from engram.policies.opening import checkpoint_folder

if TYPE_CHECKING:
    from engram.policies.training.train_config import TrainConfig


LATER = (
    "steps",
    "minutes",
    "warmup_steps",
    "memory_dropout",
    "weight_decay",
    "ema_decay",
    "gradient_norm",
    "precision",
)
"""Settings that checkpoints of older versions do not note: there they count as unchanged."""
FIXED = (
    *("window", "batch_size", "seed", "balance", "emphasis", "idle_actions", "keyframes", "image_size", "random_shift"),
    *("backbone", "memory", "model", "n_action_steps", "gradient_steps", "foresight", "freeze_perception"),
    *("perception_share", "frozen_draws", *LATER),
)
"""Settings that a resumed training must keep. Free are the learning rate, the device, where files lie, when a training
stops, is saved and logged, and how it is evaluated."""


def check_resumable(config: TrainConfig, frames: int, world: int) -> None:
    """Compare what was saved with what would go on.

    Raises:
        WeightsError: there is no checkpoint to resume from, or it cannot be read.
        InvalidInputError: it was trained by other processes, on other samples, or does not tell on which.
    """
    path = resume_folder(Path(config.out)) / "progress.json"
    if not path.exists():
        raise WeightsError(f"{path}: no checkpoint to resume from")
    try:
        saved = dict(json.loads(path.read_text()))
    except DAMAGED as error:
        raise WeightsError(f"{path}: cannot be read: {error}") from None
    wanted, before = walk(config, frames, dataset_hash(config.dataset)), saved.get("walk", {})
    if not wanted.keys() - set(LATER) <= before.keys() or "processes" not in saved:
        told = "was saved by an older version, which did not note its samples"
        raise InvalidInputError(f"{path}: {told}; begin anew in another folder")
    if saved["processes"] != world:
        raise InvalidInputError(
            f"{config.out}: was trained by {saved['processes']} processes, cannot go on with {world}"
        )
    for name, now in wanted.items():
        if before.get(name, now) != now:
            told = f"{name} was {before[name]}, now {now}"
            raise InvalidInputError(f"{config.out}: {told}: would be another training; choose another folder")


def resume_folder(out: Path) -> Path:
    """Return the folder of the newest checkpoint in ``out``, put back if a process was killed as it replaced it."""
    folder, old = out / "resume", out / "resume.old"
    if old.exists() and not folder.exists():
        with contextlib.suppress(FileNotFoundError):  # another process of the training was quicker
            old.rename(folder)
    return folder


def walk(config: TrainConfig, frames: int, dataset_sha256: str) -> dict[str, Any]:
    """Return what a training must go on with, besides the processes, as JSON keeps it: which samples come when, which
    of their steps count, what they look like and what is learnt from them."""
    start = fingerprint(checkpoint_folder(config.start_from)) if config.start_from else ""
    told = {"dataset": dataset_sha256, "frames": frames, "start_from": start}
    return told | {name: json.loads(json.dumps(getattr(config, name))) for name in FIXED}
