"""Whether a training that was cut off goes on with the same samples: with others it would be another training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engram.core.errors import InvalidInputError, WeightsError

if TYPE_CHECKING:
    from engram.policies.train import TrainConfig


def check_resumable(config: TrainConfig, frames: int, world: int) -> None:
    """Compare what was saved with what would go on.

    Raises:
        WeightsError: there is no checkpoint to resume from.
        InvalidInputError: it was trained by other processes, on other samples, or does not tell on which.
    """
    path = Path(config.out) / "resume" / "progress.json"
    if not path.exists():
        raise WeightsError(f"{path}: no checkpoint to resume from")
    saved, wanted = json.loads(path.read_text()), walk(config, frames)
    if saved["processes"] != world:
        raise InvalidInputError(
            f"{config.out}: was trained by {saved['processes']} processes, cannot go on with {world}"
        )
    before = saved.get("walk", {})
    if not wanted.keys() <= before.keys():
        told = "was saved by an older version, which did not note its samples"
        raise InvalidInputError(f"{path}: {told}; begin anew in another folder")
    for name, now in wanted.items():
        if before[name] != now:
            told = f"{name} was {before[name]}, now {now}"
            raise InvalidInputError(f"{config.out}: {told}: would go on with other samples; choose another folder")


def walk(config: TrainConfig, frames: int) -> dict[str, Any]:
    """Return what it depends on, besides the processes, which samples come when, as JSON keeps it."""
    emphasis = [list(pair) for pair in config.emphasis]
    return {
        "frames": frames, "window": config.window, "batch_size": config.batch_size, "seed": config.seed,
        "balance": config.balance, "emphasis": emphasis,
    }  # fmt: skip
