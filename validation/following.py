"""The gate's simulation follows the robot: its gap is found again as the learner's experience grows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from engram.core.durable import write_atomic
from engram.core.errors import DAMAGED, EngramError, InvalidInputError, StoreError
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.learning.experience.reader import ExperienceReader
from engram.sim.gaps import Gap, get_gap, read_gap
from engram.validation.identify import Identification, IdentificationConfig, identify

GAP = "gap.json"
"""File of the gap that was found, in the gate's folder."""
AGAIN = 50
"""New episodes after which it is looked for again."""
MATTERS = {
    "yaw_deg": 1.0,
    "gain": 0.03,
    "deadband": 0.02,
    "front_m": 0.005,
    "front_yaw_deg": 0.5,
    "wrist_m": 0.001,
    "mounted_deg": 0.5,
    "latency_steps": 0.5,
    "dropped": 0.05,
    "damping": 0.1,
    "brightness": 0.05,
    "camera_noise": 0.01,
}
"""What a record tells. A smaller change is none: the gate's trials vary a robot by about as much."""
UNTOLD = ("friction", "mass", "limits")
"""What no record tells: it is as the gate was told."""

JUDGED_ON = "robot.json"
"""File of the gap for which the gate judges candidates, in its folder."""

Find = Callable[[Path, Gap], tuple[Identification, int]]
"""Folder of experience, gap whose other values stay -> what was found, and the number of the last episode."""


def identify_stored(
    experience: Path, start: Gap, config: IdentificationConfig | None = None, robot: RobotConfig = PANDA_2F85
) -> tuple[Identification, int]:
    """Return what the newest episodes stored in ``experience`` say of the robot, and the number of the last of them.

    Where several robots are stored, it is the one that worked last.

    Raises:
        StoreError: nothing is stored there, or it is damaged.
        InvalidInputError: it is too little, or another robot's.
    """
    config, store = config or IdentificationConfig(), ExperienceReader(experience)
    known = store.catalogue()
    known = [one for one in known if one.robot_id == known[-1].robot_id]
    newest = known[-max(config.episodes, config.shots) :]
    episodes = [steps for one in newest if (steps := store.episode(one.number))]
    return identify(episodes, start, config, robot), known[-1].number if known else 0


def followed_gap(
    folder: Path, experience: Path, on: str, told: Callable[[str], None], find: Find = identify_stored
) -> str:
    """Return the file with the gap that the robot has by its newest record; ``on`` while there is too little of it.

    The file is left as it is while the record says nothing else: what was tried on it stays valid.

    Args:
        folder: where the file is kept.
        experience: of the robot.
        on: the gap whose other values stay, as :func:`engram.sim.gaps.get_gap` takes it.
        told: takes what was found, in words.
        find: finds the gap, and may do so in another process.
    """
    path, kept = folder / GAP, _kept(folder / GAP, told)
    try:
        store, start = ExperienceReader(experience), get_gap(on)
        last = _looked_at(path, store.id, told) if kept is not None else 0
        newest = store.catalogue(last)
        as_told = kept is not None and all(getattr(kept, name) == getattr(start, name) for name in UNTOLD)
        if last and as_told and len(newest) < AGAIN:
            return str(path)
        found, number = find(experience, start)
        what = ", ".join(f"{name} {one}" for name, one in found.estimates.items())
        if kept is None:
            told(f"the robot's gap: {what}")
        elif changed := differing(kept, found.gap) or ("" if as_told else "it was told so"):
            told(f"the robot has changed ({changed}): {what}")
        else:
            found = replace(found, gap=kept)
        found.write(path, episode=number, store=store.id)
        return str(path)
    except InvalidInputError as error:
        told(f"the robot's gap cannot be told yet: {error}")
    except (EngramError, OSError) as error:
        told(f"the robot's gap was not looked for: {error}")
    return on if kept is None else str(path)


def keep_judged_on(folder: Path, on: str) -> None:
    """Note in the gate's ``folder`` that it takes the robot to have the gap ``on``."""
    write_atomic(folder / JUDGED_ON, (json.dumps({"on": on}) + "\n").encode())


def judged_on(folder: Path) -> str:
    """Return the gap that the gate in ``folder`` takes the robot to have; empty: no gate has judged there.

    Raises:
        StoreError: the file is damaged.
    """
    path = folder / JUDGED_ON
    try:
        return str(json.loads(path.read_text())["on"]) if path.exists() else ""
    except DAMAGED as error:
        raise StoreError(f"{path}: cannot be read: {error}; the gate writes it again with its next verdict") from error


def differing(one: Gap, other: Gap) -> str:
    """Return the names of the values by which two gaps differ so much that it matters; empty: none."""
    far = [
        name
        for name, matters in MATTERS.items()
        if float(np.linalg.norm(np.subtract(getattr(one, name), getattr(other, name)))) > matters
    ]
    return ", ".join(far)


def _kept(path: Path, told: Callable[[str], None]) -> Gap | None:
    """Return the gap that was found before; None: there is none that can be read."""
    try:
        return read_gap(path) if path.exists() else None
    except InvalidInputError as error:
        told(f"the robot's gap is looked for anew: {error}")
        return None


def _looked_at(path: Path, store: str, told: Callable[[str], None]) -> int:
    """Return the last episode of ``store`` that the file ``path`` rests on; 0: there is none, or it does not say."""
    try:
        found = json.loads(path.read_text())["found"]
        if found.get("store", store) != store:
            told("the robot's gap is looked for anew: the learner's experience is another store than before")
            return 0
        return int(found["episode"])
    except DAMAGED:
        return 0
