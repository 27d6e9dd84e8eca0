"""What ``engram relight`` is told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engram.core.dataset_check import check_dataset
from engram.core.errors import InvalidInputError
from engram.core.paths import at_home, check_new_folder, is_on_hub

MOST_FRAMES = 8192
"""Of a step: more fit into no usual memory."""


@dataclass(frozen=True)
class RelightConfig:
    """Which policy shall see in other light, from whose pictures, and how far they are altered."""

    dataset: str
    """LeRobotDataset whose pictures show what the policy knows, in light that it knows: its own, or a part of it."""
    out: str
    """Folder of the exported policy (in ``policy``)."""
    start_from: str = "base"
    """The policy: a shipped name or the folder of an exported policy of ours without a backbone."""
    cache: str = ""
    """Folder of the decoded frames; empty = beside the dataset."""
    strength: float = 1.0
    """How far the pictures are altered; 1: up to 1.6 times as bright or as dark in their middle, 0: not at all."""
    steps: int = 4_000
    """Optimiser steps; the learning rate falls along a cosine to a hundredth over them."""
    batch_size: int = 64
    """Frames a step; 2 to 8192."""
    learning_rate: float = 5e-4
    """Peak learning rate of AdamW."""
    device: str = "auto"
    """Where to train: cpu, cuda, cuda:1, ...; auto: a GPU if there is one."""
    seed: int = 0
    """Of samples and alterations."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InvalidInputError(f"steps: {self.steps}, expected at least 1")
        if not 2 <= self.batch_size <= MOST_FRAMES:
            raise InvalidInputError(f"batch_size: {self.batch_size}, expected 2 to {MOST_FRAMES}")
        if not 0 <= self.strength <= 2:
            raise InvalidInputError(f"strength: {self.strength}, expected 0 to 2")
        if not 0 < self.learning_rate <= 1:
            raise InvalidInputError(f"learning_rate: {self.learning_rate}, expected above 0, at most 1")
        if self.seed < 0:
            raise InvalidInputError(f"seed: {self.seed}, expected 0 or more")


def resolved(config: RelightConfig) -> RelightConfig:
    """Return ``config`` with ``~`` in its places as the home folder."""
    places = {name: getattr(config, name) for name in ("dataset", "out", "cache", "start_from")}
    moved: dict[str, Any] = {name: str(at_home(place)) for name, place in places.items() if place.startswith("~")}
    return replace(config, **moved)


def check(config: RelightConfig) -> None:
    """Raise InvalidInputError for places that are not there, cannot be written, or would change what is read.

    Raises:
        UnknownNameError: the device or ``start_from`` is none; lists the valid ones.
    """
    from engram.policies.opening import checkpoint_folder  # slow to import
    from engram.policies.training.processes import training_device

    training_device(config.device)
    check_dataset(Path(config.dataset))
    read = {"dataset": config.dataset}
    if not is_on_hub(config.start_from):
        read["start_from"] = str(checkpoint_folder(config.start_from))
    check_new_folder("out", config.out, read)
    if config.cache:
        check_new_folder("cache", config.cache, read)
    if (Path(config.out) / "policy").exists():
        raise InvalidInputError(f"out {config.out!r}: holds a policy already; choose another folder")
