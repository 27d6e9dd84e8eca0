"""The configuration of a training, and checks of it."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engram.core.dataset_check import check_dataset
from engram.core.errors import InvalidInputError, WeightsError, unknown_name
from engram.core.paths import at_home, check_new_folder
from engram.core.registry import is_spec
from engram.policies.checkpoint import WEIGHTS
from engram.policies.foreign_code import check_importable
from engram.policies.opening import checkpoint_folder
from engram.policies.sequence_memory import NONE
from engram.policies.training.processes import training_device
from engram.policies.training.resuming import read_progress

PRECISIONS = ("auto", "float32", "bfloat16")


@dataclass(frozen=True)
class TrainConfig:
    """How to train the policy."""

    dataset: str
    """Folder of a LeRobotDataset v3."""
    out: str = "outputs/train"
    """Folder of checkpoints, logs and the exported policy."""
    cache: str = ""
    """Folder of the decoded frames; empty = beside the dataset."""
    steps: int = 12_000
    """Optimiser steps; the learning rate falls along a cosine to a hundredth over them."""
    minutes: float = 0.0
    """Wall-clock budget: the schedule follows the clock if that is ahead of the steps, and training ends when it is
    spent, at the cost of exact repeatability; 0 = none."""
    stop_after: int = 0
    """Stop, with a checkpoint, after this step; 0 = at the end. ``resume`` continues."""
    start_from: str = ""
    """Start with the weights of this policy: a shipped name or the folder of an exported policy. If its sequence
    memory is of another kind, the memory starts fresh. Its normalisation of states and actions is kept. Empty =
    fresh weights."""
    freeze_perception: bool = False
    """Freeze the perception of ``start_from`` and train memory and action head alone. Every image is encoded once,
    which takes a tenth of the time. Needs ``window``, and ``start_from`` or ``perception_share``."""
    perception_share: float = 0.0
    """With ``freeze_perception``: perception is trained in this first share of the steps; then training continues
    from the averaged weights with perception frozen."""
    frozen_draws: int = 4
    """With ``freeze_perception``: encode every image in so many augmentations (9 kB of RAM each); 1 = without
    augmentation."""
    resume: bool = False
    """Continue from the last checkpoint in ``out``."""
    batch_size: int = 32
    """Observations per process and step; with ``window`` a multiple of that."""
    backbone: str = ""
    """Folder or hub id of a SmolVLA or pi0 that LeRobot fine-tuned on such data. It stays frozen; only a sequence
    memory beside it is trained. Empty = our small network."""
    memory: str = "none"
    """The policy's memory of its episode: none, bank, first_frame, frame_stack, gru, fast_forgetful, hcam, retrieval,
    place, or package.module:attribute of your own; all but none need ``window``."""
    window: int = 0
    """Train on windows of so many consecutive steps, batch_size / window episodes side by side, with memory carried
    between windows; 0 = on single frames."""
    gradient_steps: int = 0
    """K of truncated backpropagation: gradients pass through so many writes into memory; 0 = through a whole window."""
    foresight: float = 0.5
    """Weight of the auxiliary loss for a sequence memory: predict where the tool will be 8 to 48 steps later; 0 =
    off."""
    memory_dropout: float = 0.0
    """Share of the observations at which the reading of the sequence memory is withheld, so that memory is not asked
    for what the present or memory/context tells."""
    idle_actions: bool = False
    """Also train on actions of exactly no motion, as they are commanded while the arm is held. Such a policy may
    stop in mid-task."""
    keyframes: float = 0.0
    """With ``window``: share of the steps without a change of direction that is left out of the loss, so that
    turning points weigh more; 0 = none."""
    device: str = "auto"
    """Where to train: cpu, cuda, cuda:1, ...; auto: a GPU if there is one."""
    precision: str = "auto"
    """float32, or bfloat16 (autocast; memory itself stays float32); auto: bfloat16 on a GPU."""
    evaluate: int = 0
    """Episodes per task to evaluate at the end, on seeds 0 and up; rates with intervals are written to the card; 0 =
    none."""
    processes: int = 1
    """Processes, one torch thread each, whose gradients are averaged; ignored under torchrun."""
    learning_rate: float = 1e-3
    """Peak learning rate of AdamW."""
    weight_decay: float = 1e-3
    """Of matrices; vectors are not decayed."""
    warmup_steps: int = 100
    """Steps in which the learning rate rises."""
    gradient_norm: float = 1.0
    """Gradients are clipped to this norm."""
    ema_decay: float = 0.998
    """Of the averaged weights, which are what is exported."""
    balance: float = 0.5
    """A task with m frames is sampled in proportion to m ** balance: 0 = all tasks alike, 1 = all frames alike."""
    emphasis: tuple[tuple[str, float], ...] = ()
    """Sample these tasks so many times as often, as name-value pairs."""
    seed: int = 0
    """Of weights, samples, augmentation and flow noise."""
    checkpoint_minutes: float = 5.0
    """Time between checkpoints."""
    log_steps: int = 20
    """Steps between two entries in the log."""
    n_action_steps: int = 2
    """Rows of a chunk that the policy executes."""
    image_size: int = 64
    """Side of the images that the network sees [px]."""
    random_shift: int = 1
    """Largest shift of the image augmentation [px]."""
    model: tuple[tuple[str, float], ...] = ()
    """Other fields of EngramVLAConfig, with ``backbone`` of EngramBackboneConfig, as name-value pairs."""


def check(config: TrainConfig) -> None:
    """Raise InvalidInputError for settings that cannot be, or do not go together, and for places that are not there.

    So it does where ``out`` or ``cache`` cannot be written, or would change what is read.

    Raises:
        UnknownNameError: the precision, the device or ``start_from`` is none; lists the valid ones.
        WeightsError: there are no weights in ``start_from``, or nothing to resume from in ``out``.
    """
    _check_values(config)
    _check_combinations(config)
    if is_spec(config.memory):
        check_importable(config.memory, "memory")  # or nothing could open the checkpoint
    training_device(config.device)
    if config.start_from and not (checkpoint_folder(config.start_from) / WEIGHTS).is_file():
        raise WeightsError(f"start_from {config.start_from!r}: there is no {WEIGHTS} in it")
    check_dataset(Path(config.dataset))
    read = {"dataset": config.dataset, "backbone": config.backbone}
    if config.start_from:
        read["start_from"] = str(checkpoint_folder(config.start_from))
    check_new_folder("out", config.out, read)
    if config.cache:
        check_new_folder("cache", config.cache, read)
    check_out(config)
    if config.resume:
        read_progress(Path(config.out))


def check_out(config: TrainConfig) -> None:
    """Raise InvalidInputError if there is a policy in ``out`` that would be written over."""
    if (Path(config.out) / "policy").exists() and not config.resume and os.environ.get("RANK", "0") == "0":
        raise InvalidInputError(f"out {config.out!r}: holds a policy already; choose another folder, or --resume")


def resolved(config: TrainConfig) -> TrainConfig:
    """Return ``config`` with ``~`` in its places as the home folder."""
    places = {name: getattr(config, name) for name in ("dataset", "out", "cache", "start_from", "backbone")}
    moved: dict[str, Any] = {name: str(at_home(place)) for name, place in places.items() if place.startswith("~")}
    return replace(config, **moved)


def _check_values(config: TrainConfig) -> None:
    for name in (
        *("processes", "batch_size", "steps", "warmup_steps", "log_steps", "frozen_draws"),
        *("n_action_steps", "image_size"),
    ):
        if getattr(config, name) < 1:
            raise InvalidInputError(f"{name}: {getattr(config, name)}, expected at least 1")
    for name in ("gradient_steps", "stop_after", "evaluate", "seed", "random_shift"):
        if getattr(config, name) < 0:
            raise InvalidInputError(f"{name}: {getattr(config, name)}, expected 0 or more")
    for name in ("minutes", "weight_decay", "balance", "checkpoint_minutes", "foresight"):
        if not 0 <= getattr(config, name) < math.inf:
            raise InvalidInputError(f"{name}: {getattr(config, name)}, expected a finite number, 0 or more")
    for name in ("learning_rate", "gradient_norm"):
        if not 0 < getattr(config, name) < math.inf:
            raise InvalidInputError(f"{name}: {getattr(config, name)}, expected a finite number above 0")
    for name in ("perception_share", "keyframes", "memory_dropout", "ema_decay"):
        if not 0 <= getattr(config, name) < 1:
            raise InvalidInputError(f"{name}: {getattr(config, name)}, expected at least 0 and below 1")
    if config.window < 0 or config.window > config.batch_size:
        raise InvalidInputError(f"window: {config.window}, expected 0..{config.batch_size}, the batch_size")
    if config.window and config.batch_size % config.window:
        raise InvalidInputError(f"batch_size: {config.batch_size}, expected a multiple of window, {config.window}")
    if config.precision not in PRECISIONS:
        raise unknown_name("precision", config.precision, PRECISIONS)
    for name, times in config.emphasis:
        if not 0 < times < math.inf:
            raise InvalidInputError(f"emphasis of {name}: {times}, expected above 0 and finite")
    if len(dict(config.emphasis)) < len(config.emphasis):
        raise InvalidInputError(f"emphasis: {', '.join(n for n, _ in config.emphasis)}, expected each task once")


def _check_combinations(config: TrainConfig) -> None:
    if config.memory != NONE and config.window == 0:
        raise InvalidInputError(f"memory {config.memory!r} learns from steps in a row: set window, such as 16")
    if config.perception_share and not config.freeze_perception:
        raise InvalidInputError("perception_share: says when to freeze perception, needs freeze_perception")
    if config.freeze_perception and not ((config.start_from or config.perception_share) and config.window):
        raise InvalidInputError(
            "freeze_perception: needs start_from, whose perception it is, or perception_share, and window"
        )
    if config.freeze_perception and config.backbone:
        raise InvalidInputError("freeze_perception: a backbone is frozen without it")
    for name, without, needed in (
        ("keyframes", not config.window, "window"),
        ("memory_dropout", config.memory == NONE, "a memory"),
        ("gradient_steps", not config.window, "window"),
        ("image_size", bool(config.backbone), "our own network, not a backbone"),
        ("random_shift", bool(config.backbone), "our own network, not a backbone"),
    ):
        if without and getattr(config, name) != getattr(TrainConfig, name):
            raise InvalidInputError(f"{name}: would change nothing, needs {needed}")
