"""``engram identify``: how does a robot differ from the simulation? Its own experience says.

The last line is JSON. The gap goes to a file that ``--on`` of ``engram validate`` and ``engram improve`` takes.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from engram.core.errors import InvalidInputError
from engram.core.provenance import commit
from engram.core.registry import make_robot
from engram.sim.gaps import get_gap


@dataclass(frozen=True)
class IdentifyConfig:
    """Find out from a robot's experience how it differs from the simulation."""

    experience: tyro.conf.Positional[Path | None] = None
    """Folder of experience, as engram improve leaves it."""
    learner: Path | None = None
    """Folder of a learner (its parameter folder), in place of one of experience; it may be running."""
    besides: str = "none"
    """The gap whose other values stay, as of engram improve; careful: a robot that keeps to 30 percent of its
    limits."""
    episodes: int = 16
    """Newest episodes whose motions are compared."""
    shots: int = 32
    """Steps whose pictures are compared."""
    robot: str = "panda_2f85"
    """Which robot it is: panda_2f85, so101, or package.module:attribute of your own RobotConfig."""
    output: Path | None = None
    """File for the gap; default: gap.json here, or that of the learner's gate."""


def identify(config: IdentifyConfig) -> int:
    """Find the gap; the last line is what was found as JSON."""
    from engram.validation.following import GAP, identify_stored
    from engram.validation.identify import IdentificationConfig
    from engram.validation.of_learner import GATE

    if (config.experience is None) == (config.learner is None):
        raise InvalidInputError("IdentifyConfig.experience: name a folder of experience, or a learner's (--learner)")
    folder = config.experience if config.learner is None else config.learner.expanduser() / "experience"
    assert folder is not None
    output = config.output or (Path(GAP) if config.learner is None else config.learner.expanduser() / GATE / GAP)
    try:
        sample = IdentificationConfig(config.episodes, config.shots)
    except InvalidInputError as error:
        raise InvalidInputError(str(error).replace("IdentificationConfig.", "IdentifyConfig.")) from None
    found, last = identify_stored(folder, get_gap(config.besides), sample, make_robot(config.robot))
    console, table = Console(stderr=True), Table("value", "found", "95 % interval", title=f"How {folder} differs")
    for name, one in found.estimates.items():
        told = f"{one.low:.4g} .. {one.high:.4g}" if math.isfinite(one.low) else "too few episodes to say"
        table.add_row(name, f"{one.value:.4g}", told)
    for name, why in found.untold.items():
        table.add_row(name, "cannot be told", why)
    console.print(table)
    command = " ".join(sys.argv[1:])
    found.write(output.expanduser(), episode=last, command=command, commit=commit())
    console.print(f"written: {output}")
    estimates = {name: one.told() for name, one in found.estimates.items()}
    print(json.dumps({"gap": asdict(found.gap), "found": estimates, "untold": found.untold, "kept": str(output)}))
    return 0
