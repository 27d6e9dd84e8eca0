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

from engram.app.options import writable
from engram.core.errors import InvalidInputError
from engram.core.paths import at_home
from engram.core.provenance import commit
from engram.core.registry import make_robot
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.sim.gaps import ROBOT, get_gap


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
    """Which robot it is: panda_2f85, so101, or package.module:attribute of your own RobotConfig. The gap from another
    one than panda_2f85 is for you to read: gate and practice simulate a panda_2f85."""
    output: Path | None = None
    """File for the gap; default: gap.json here, or that of the learner's gate (of panda_2f85 alone)."""


def identify(config: IdentifyConfig) -> int:
    """Find the gap; the last line is what was found as JSON."""
    from engram.validation.following import identify_stored
    from engram.validation.identify import IdentificationConfig

    if (config.experience is None) == (config.learner is None):
        raise InvalidInputError("IdentifyConfig.experience: name a folder of experience, or a learner's (--learner)")
    folder = config.experience if config.learner is None else config.learner.expanduser() / "experience"
    assert folder is not None
    robot = make_robot(config.robot)
    output = _output(config, robot, folder)
    try:
        sample = IdentificationConfig(config.episodes, config.shots)
    except InvalidInputError as error:
        raise InvalidInputError(str(error).replace("IdentificationConfig.", "IdentifyConfig.")) from None
    found, last = identify_stored(folder, get_gap(config.besides), sample, robot)
    console, table = Console(stderr=True), Table("value", "found", "95 % interval", title=f"How {folder} differs")
    for name, one in found.estimates.items():
        told = f"{one.low:.4g} .. {one.high:.4g}" if math.isfinite(one.low) else "too few episodes to say"
        table.add_row(name, f"{one.value:.4g}", told)
    for name, why in found.untold.items():
        table.add_row(name, "cannot be told", why)
    console.print(table)
    command = " ".join(sys.argv[1:])
    about = {} if robot is PANDA_2F85 else {ROBOT: config.robot}
    found.write(output, episode=last, command=command, commit=commit(), **about)
    console.print(f"written: {output}")
    estimates = {name: one.told() for name, one in found.estimates.items()}
    print(json.dumps({"gap": asdict(found.gap), "found": estimates, "untold": found.untold, "kept": str(output)}))
    return 0


def _output(config: IdentifyConfig, robot: RobotConfig, experience: Path) -> Path:
    """Return the file for the gap of ``robot``.

    Raises:
        InvalidInputError: it is that of the learner's gate, which simulates another robot; it lies in
            ``experience``; or it cannot be written.
    """
    from engram.validation.following import GAP
    from engram.validation.of_learner import GATE

    gates = None if config.learner is None else config.learner.expanduser() / GATE / GAP
    output = gates or Path(GAP) if config.output is None else at_home(config.output)
    if robot is not PANDA_2F85 and gates is not None and output.resolve() == gates.resolve():
        raise InvalidInputError(
            f"IdentifyConfig.output: the learner's gate reads {output} for the {PANDA_2F85.name} that it simulates; "
            f"name another file for the gap from {config.robot}"
        )
    return writable("IdentifyConfig.output", output, {"the experience": experience}) or output
