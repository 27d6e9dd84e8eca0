"""The learner's state on disk: its counters, the algorithm's own state and the weights, always replaced together."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engram.core.durable import sync, write_atomic
from engram.core.errors import DAMAGED, InvalidInputError, WeightsError
from engram.core.types import Lineage
from engram.learning.experience.database import unreadable


@dataclass
class Progress:
    """What is saved beside the algorithm's state."""

    parent: str
    """Version that drives the robots: the parent of the next candidate."""
    lineage: str = ""
    """Lineage.id of the weights."""
    config: dict[str, Any] = field(default_factory=dict)
    """The learner's configuration, as JSON gives it back."""
    store: str = ""
    """Id of the store whose episodes ``cursor`` and ``replay`` number; empty: not known."""
    cursor: int = 0
    """Number of the last episode that was looked at."""
    episodes: int = 0
    """Episodes that were looked at."""
    successes: int = 0
    """Successful episodes that entered the replay buffer."""
    failures: int = 0
    """Failed ones that did; only for algorithms that learn from failures."""
    experience: str = ""
    """Digest of what has entered it, in that order."""
    earlier: str = ""
    """Digest of what is learnt from of earlier experiments; empty: nothing is."""
    passed_over: dict[str, int] = field(default_factory=dict)
    """Reason -> episodes to learn from that were not."""
    updates: int = 0
    failed: int = 0
    """Updates that could not be taken: each has used up its draw from the replay buffer."""
    update_credit: int = 0
    """Updates that episodes have paid for and that are not taken yet."""
    at_candidate: int = 0
    """Updates when the last candidate was made."""
    corrections: int = 0
    """How often corrections of the motions became part of the weights."""
    candidates: int = 0
    line: dict[str, str] = field(default_factory=dict)
    """Versions that training came through, oldest first, each with the sha256 of its weights: those that drove when it
    began from them, then its candidates."""
    returns: int = 0
    """How often training went back to the weights that drive."""
    loss: float = 0.0
    """Running mean."""
    replay: list[int] = field(default_factory=list)
    """Numbers of the episodes in the replay buffer."""
    streams: list[list[int]] = field(default_factory=list)
    """Position of the stream through whole episodes."""


def save_progress(folder: Path, progress: Progress, algorithm_state: bytes, weights: bytes) -> None:
    """Write everything; a crash leaves this state or the one before, never half of either."""
    name = f"state-{progress.updates:09d}-{progress.cursor:09d}-{progress.returns:04d}"
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


def load_progress(
    folder: Path, config: Mapping[str, Any], lineage: Lineage, fixed: Collection[str] = ()
) -> tuple[Progress, bytes, str] | None:
    """Return what :func:`save_progress` wrote, None if it never did.

    Training goes on with ``config``. How it differs from what was saved is told in words; empty: it does not.

    Args:
        folder: of the state.
        config: configuration of the learner, as JSON gives it back.
        lineage: of its weights.
        fixed: settings that the saved state rests on, such as ``replay.chunk_size``.

    Raises:
        UnreadableStoreError: it is damaged.
        StoreError: the disk refuses it.
        WeightsError: it is of another lineage than ``lineage``.
        InvalidInputError: one of ``fixed`` has changed.
    """
    if not (folder / "current").exists():
        return None
    where = folder
    try:
        where = folder / (folder / "current").read_text()
        saved = Progress(**json.loads((where / "progress.json").read_text()))
        state = (where / "algorithm.safetensors").read_bytes()
        before = _flat(saved.config)
    except DAMAGED as error:
        raise unreadable(error)(f"{where}: the learner's state cannot be read: {error}") from error
    if saved.lineage != lineage.id:
        raise WeightsError(f"{where}: training state of lineage {saved.lineage}, expected {lineage.id}: {lineage}")
    # a setting that the saved state does not know yet has changed nothing
    changed = {name: now for name, now in _flat(config).items() if before.get(name, now) != now}
    for name, now in changed.items():
        if name in fixed:
            raise InvalidInputError(
                f"{folder}: was trained with {name} {before[name]}, not {now}, and its state fits no other; use "
                f"{before[name]} or another folder"
            )
    saved.config = dict(config)
    return saved, state, ", ".join(f"{name} {now}, was {before[name]}" for name, now in sorted(changed.items()))


def _flat(config: Mapping[str, Any], of: str = "") -> dict[str, Any]:
    """Return the settings of ``config``, those of a part of it as ``part.name``."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= _flat(value, f"{of}{name}.") if isinstance(value, Mapping) else {f"{of}{name}": value}
    return found


def saved_state(folder: Path) -> str:
    """Return the name of what :func:`save_progress` wrote last; empty: it never did, or that cannot be read."""
    try:
        return (folder / "current").read_text()
    except (OSError, ValueError):
        return ""


def read_weights(folder: Path, name: str) -> tuple[Progress, bytes] | None:
    """Return counters and weights of the state ``name``, beside the learner; None: it was replaced meanwhile."""
    try:
        progress = Progress(**json.loads((folder / name / "progress.json").read_text()))
        return progress, (folder / name / "weights.safetensors").read_bytes()
    except DAMAGED:
        return None
