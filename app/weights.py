"""``engram weights``: every version of the weights that a learner made, where it comes from, and what became of it.

The last line is JSON.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from engram.core.errors import InvalidInputError, WeightsError
from engram.learning.weights.keys import keys_folder
from engram.learning.weights.library import UNREADABLE, WeightsLibrary


@dataclass(frozen=True)
class WeightsConfig:
    """The versions of a learner's weights. The learner may be running; nothing is changed."""

    learner: tyro.conf.Positional[Path | None] = None
    """Folder of the learner (its parameter folder); default: learner in the robot's data folder."""
    robot: str = "robot0"
    """robot_id of the robot whose data folder is meant: its namespace with _ for /, robot0 without one."""


def weights(config: WeightsConfig) -> int:
    """List the versions; the last line is what is known of them as JSON."""
    learner = (config.learner or keys_folder(config.robot).with_name("learner")).expanduser()
    library = WeightsLibrary(learner / "weights", read_only=True)
    if not library.versions:
        raise InvalidInputError(f"WeightsConfig.learner: {learner} holds no weights of a learner")
    rows, current = [], library.current
    table = Table("version", "stage", "trained from", "successes", "updates", "why", title=f"Weights in {learner}")
    for version in library.versions:
        try:
            manifest = library.manifest(version)
        except WeightsError as error:
            table.add_row(version, UNREADABLE, "", "", "", str(error))
            rows.append({"version": version, "stage": UNREADABLE, "drives": version == current, "error": str(error)})
            continue
        metrics = manifest.metrics
        because = str(metrics.get("because", metrics.get("approved_because", "")))
        counts = [str(metrics.get(name, "")) for name in ("successes", "updates")]
        table.add_row(version, manifest.stage, manifest.parent, *counts, because)
        rows.append(asdict(manifest) | {"drives": version == current})
    console = Console(stderr=True)
    console.print(table)
    console.print(f"Drives: {current or '(none)'}")
    print(json.dumps({"learner": str(learner), "deployed": library.deployed, "versions": rows}))
    return 0
