"""The learner's state on disk: its counters, the algorithm's own state and the weights, always replaced together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engram.core.durable import sync, write_atomic
from engram.core.errors import DAMAGED, InvalidInputError, StoreError, WeightsError
from engram.core.types import Lineage


@dataclass
class Progress:
    """What is saved beside the algorithm's state."""

    parent: str
    """Version that drives the robots: the parent of the next candidate."""
    lineage: str = ""
    """Lineage.id of the weights."""
    config: dict[str, Any] = field(default_factory=dict)
    """The learner's configuration, as JSON gives it back."""
    cursor: int = 0
    """Number of the last episode that was looked at."""
    episodes: int = 0
    """Episodes that were looked at."""
    successes: int = 0
    """Episodes that entered the replay buffer."""
    experience: str = ""
    """Digest of what has entered it, in that order."""
    passed_over: dict[str, int] = field(default_factory=dict)
    """Reason -> successful episodes that were not learnt from."""
    updates: int = 0
    update_credit: int = 0
    """Updates that successes have paid for and that are not taken yet."""
    at_candidate: int = 0
    """Updates when the last candidate was made."""
    corrections: int = 0
    """How often corrections of the motions became part of the weights."""
    candidates: int = 0
    loss: float = 0.0
    """Running mean."""
    replay: list[int] = field(default_factory=list)
    """Numbers of the episodes in the replay buffer."""
    streams: list[list[int]] = field(default_factory=list)
    """Position of the stream through whole episodes."""


def save_progress(folder: Path, progress: Progress, algorithm_state: bytes, weights: bytes) -> None:
    """Write everything; a crash leaves this state or the one before, never half of either."""
    name = f"state-{progress.updates:09d}-{progress.cursor:09d}"
    write_atomic(folder / name / "algorithm.safetensors", algorithm_state)
    write_atomic(folder / name / "weights.safetensors", weights)
    write_atomic(folder / name / "progress.json", json.dumps(asdict(progress), indent=1).encode())
    write_atomic(folder / "current", name.encode())
    for old in folder.glob("state-*"):
        if old.name != name:
            for file in old.iterdir():
                file.unlink()
            old.rmdir()
    sync(folder)


def load_progress(folder: Path, config: Mapping[str, Any], lineage: Lineage) -> tuple[Progress, bytes] | None:
    """Return what :func:`save_progress` wrote, None if it never did.

    Raises:
        StoreError: it cannot be read.
        WeightsError: it is of another lineage than ``lineage``.
        InvalidInputError: it belongs to another configuration than ``config``.
    """
    if not (folder / "current").exists():
        return None
    folder = folder / (folder / "current").read_text()
    try:
        saved = Progress(**json.loads((folder / "progress.json").read_text()))
        state = (folder / "algorithm.safetensors").read_bytes()
    except DAMAGED as error:
        raise StoreError(f"{folder}: the learner's state cannot be read: {error}") from error
    if saved.lineage != lineage.id:
        raise WeightsError(f"{folder}: training state of lineage {saved.lineage}, expected {lineage.id}: {lineage}")
    before = {**config, **saved.config}  # a setting that the saved state does not know yet has changed nothing
    changed = sorted(name for name in before if before[name] != config.get(name))
    if changed:
        values = ", ".join(str(before[name]) for name in changed)
        raise InvalidInputError(
            f"{folder}: was trained with another {', '.join(changed)} ({values}); use that or another folder"
        )
    return saved, state


def saved_state(folder: Path) -> str:
    """Return the name of what :func:`save_progress` wrote last; empty: it never did."""
    try:
        return (folder / "current").read_text()
    except OSError:
        return ""


def read_weights(folder: Path, name: str) -> tuple[Progress, bytes] | None:
    """Return counters and weights of the state ``name``, beside the learner; None: it was replaced meanwhile."""
    try:
        progress = Progress(**json.loads((folder / name / "progress.json").read_text()))
        return progress, (folder / name / "weights.safetensors").read_bytes()
    except DAMAGED:
        return None
