"""Checks that a resumed training continues with the same samples and settings."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from engram.core.errors import DAMAGED, InvalidInputError, WeightsError
from engram.core.provenance import dataset_hash
from engram.policies.checkpoint import PROGRESS, REPLACED, STATE, fingerprint
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
_KINDS: dict[str, tuple[type, ...]] = {
    **{"step": (int,), "processes": (int,), "trained_s": (float, int), "share": (float, int)},
    **{"frozen": (bool,), "walk": (dict,)},
}
"""What there is in ``progress.json``; numbers are finite and not negative."""
_NOTED_LATER = ("processes", "walk")
"""Those of it that older versions did not note."""


def check_resumable(config: TrainConfig, frames: int, world: int) -> None:
    """Compare what was saved with what would go on.

    Raises:
        WeightsError: there is no checkpoint to resume from, or it cannot be read.
        InvalidInputError: it was trained by other processes, on other samples, or does not tell on which.
    """
    path, saved = Path(config.out) / "resume" / PROGRESS, read_progress(Path(config.out))
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
    if saved["frozen"] and not config.freeze_perception:
        raise WeightsError(f"{path}: frozen: True, expected false without freeze_perception")


def read_progress(out: Path) -> dict[str, Any]:
    """Return how far the training in ``out`` came, and what it was; its tensors are found to be whole.

    Raises:
        WeightsError: there is no checkpoint to resume from, or it cannot be read.
    """
    folder = resume_folder(out)
    path, tensors = folder / PROGRESS, folder / STATE
    for file in (path, tensors):
        if not file.is_file():
            raise WeightsError(f"{file}: no checkpoint to resume from")
    try:
        saved = dict(json.loads(path.read_text()))
    except DAMAGED as error:
        raise WeightsError(f"{path}: cannot be read: {error}") from None
    for name, kinds in _KINDS.items():
        value: Any = saved.get(name)
        if name in _NOTED_LATER and name not in saved:
            continue
        if type(value) not in kinds or not (isinstance(value, dict) or 0 <= value < math.inf):
            wanted = {bool: "true or false", dict: "an object"}.get(kinds[0], "a finite number, 0 or more")
            raise WeightsError(f"{path}: {name}: {value!r}, expected {wanted}")
    try:
        with safe_open(tensors, framework="pt"):
            pass  # it has compared the file's length with its header
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{tensors}: not a readable safetensors file: {error}") from None
    return saved


def resume_folder(out: Path) -> Path:
    """Return the folder of the newest checkpoint in ``out``, put back if a process was killed as it replaced it."""
    folder, old = out / "resume", out / f"resume{REPLACED}"
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
