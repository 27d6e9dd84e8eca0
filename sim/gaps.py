"""How a robot can differ from the simulated tabletop: calibration, cameras, light, friction, damping, delays, limits.

A policy that was trained on the nominal tabletop fails there more often, as it does on hardware. Nothing tells it what
differs.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from engram.core.errors import DAMAGED, EngramError, InvalidInputError, unknown_name


@dataclass(frozen=True)
class Gap:
    """What differs from the nominal tabletop; the default differs in nothing."""

    yaw_deg: float = 0.0
    """The axes of the tool's motions are turned about the vertical by this."""
    gain: float = 1.0
    """Executed translation, of the commanded one."""
    deadband: float = 0.0
    """Translations shorter than this do nothing, longer ones lose as much; 1 = the longest of a control step."""
    front_m: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """The front camera is displaced by this, in base_link."""
    wrist_m: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """The wrist camera is displaced by this, in its own axes."""
    front_yaw_deg: float = 0.0
    """The front camera is turned about the vertical by this."""
    friction: float = 1.0
    """Sliding friction of everything, of the nominal one."""
    mass: float = 1.0
    """Mass of what lies on the table, of the nominal one."""
    mounted_deg: float = 0.0
    """The robot stands turned about the vertical by this on its place; its cameras were calibrated there."""
    latency_steps: int = 0
    """A command is executed so many control steps late."""
    dropped: float = 0.0
    """Share of the control steps whose pictures do not come: those of the step before are seen again."""
    limits: float = 1.0
    """Share of the robot's speed, acceleration and jerk limits that its safety filter allows."""
    damping: float = 1.0
    """Damping of the arm's joints and their servos, of the nominal one: how long the arm trails where it is told to be.
    The nominal Panda's trails by 0.02 s."""
    brightness: float = 1.0
    """Brightness of all lamps, of the nominal one."""
    camera_noise: float = 0.0
    """Standard deviation of the noise of each colour of each pixel; 1 = from black to white."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, several = getattr(self, field.name), isinstance(field.default, tuple)
            low, high = _RANGES.get(field.name, (-MOST, MOST))
            numbers = value if several and isinstance(value, tuple) else (value,)
            whole = isinstance(field.default, int)
            kinds = int if whole else int | float
            fit = all(isinstance(one, kinds) and low <= one <= high for one in numbers)
            if not fit or len(numbers) != (3 if several else 1):
                kind = "three numbers" if several else "a whole number" if whole else "a number"
                raise InvalidInputError(f"Gap.{field.name}: {value!r}, expected {kind} from {low:g} to {high:g}")


MOST = 1e6
"""Of an angle or a length in a gap."""
_RANGES = {
    "gain": (0.01, 100.0),
    "deadband": (-1.0, 1.0),
    "friction": (0.0, 100.0),
    "mass": (0.001, 1000.0),
    "latency_steps": (0, 1000),
    "dropped": (0.0, 1.0),
    "limits": (0.001, 1.0),
    "damping": (0.01, 100.0),
    "brightness": (0.0, 100.0),
    "camera_noise": (0.0, 1.0),
}
"""Least and most of what has to be in a range."""

ROBOT = "robot"
"""In a file, under ``found``: from which robot's configuration it tells the gap, if not from the shipped Panda's."""

GAPS: dict[str, Gap] = {
    "none": Gap(),
    "turned": Gap(yaw_deg=15.0),
    "turned_scaled": Gap(yaw_deg=-10.0, gain=1.4),
    "wrist_moved": Gap(wrist_m=(0.0, 0.006, 0.0)),
    "front_moved": Gap(front_m=(0.0, 0.03, 0.0), front_yaw_deg=-3.0),
    "mounted": Gap(mounted_deg=5.0),
    "knocked": Gap(mounted_deg=-10.0),
    "worn": Gap(deadband=0.12, friction=0.5, mass=2.0),
    "late": Gap(latency_steps=2, dropped=0.2),
    "sluggish": Gap(damping=10.0),
    "dim": Gap(brightness=0.85, camera_noise=0.05),
    "careful": Gap(limits=0.3),
}
"""Name -> gap. A robot's parameter file begins with limits as in ``careful``."""


def get_gap(name: str) -> Gap:
    """Return the gap called ``name``, or that of a file which ``engram identify`` wrote (``....json``).

    Raises:
        UnknownNameError: no gap is called so; lists those that are.
        InvalidInputError: the file cannot be read, or holds no gap.
    """
    if name.endswith(".json"):
        return read_gap(Path(name).expanduser())
    if name not in GAPS:
        raise unknown_name("gap", name, (*GAPS, "yours.json of engram identify"))
    return GAPS[name]


def read_gap(path: Path) -> Gap:
    """Return the gap in the JSON file ``path``, under ``gap``: its values by name; what is not named is nominal.

    Raises:
        InvalidInputError: the file cannot be read, or holds no gap, or one from another robot than the simulated one.
    """
    try:
        kept = json.loads(path.read_text())
        told, robot = dict(kept["gap"]), dict(kept.get("found", {})).get(ROBOT)
    except DAMAGED as error:
        raise InvalidInputError(f"{path}: no gap can be read there: {error!r}") from error
    if robot is not None:
        raise InvalidInputError(f"{path}: a gap from {robot}, expected one from panda_2f85, which is simulated")
    try:
        if unknown := sorted(set(told) - {field.name for field in fields(Gap)}):
            raise unknown_name("value of a gap", unknown[0], (field.name for field in fields(Gap)))
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in told.items()}
        return Gap(**values)
    except EngramError as error:
        raise InvalidInputError(f"{path}: {error}") from error


DEVIATIONS: dict[str, tuple[float, float]] = {
    "turned by [deg]": (-3.0, 3.0),
    "motions times": (0.9, 1.1),
    "deadband": (0.0, 0.03),
    "front camera x [m]": (-0.01, 0.01),
    "front camera y [m]": (-0.01, 0.01),
    "front camera z [m]": (-0.01, 0.01),
    "front camera turned by [deg]": (-1.0, 1.0),
    "wrist camera y [m]": (-0.002, 0.002),
    "friction times": (0.7, 1.4),
    "mass times": (0.7, 1.5),
    "one step late": (-2.0, 1.0),  # from 0 on it is: a quarter of all
    "pictures dropped": (0.0, 0.1),
    "damping times": (0.7, 1.5),
    "brightness times": (0.85, 1.15),
    "camera noise": (0.0, 0.02),
}
"""What remains of a robot that was set up with care: how far it deviates from its gap, from least to most."""


def deviated(gap: Gap, place: Sequence[float]) -> Gap:
    """Return ``gap`` with the deviations at ``place`` (15,), 0 the least and 1 the most, in the order of
    ``DEVIATIONS``; a value ends at what a gap may have."""
    yaw, gain, deadband, *others = deviations(place).values()
    *aside, front, wrist, friction, mass, late, dropped, damping, brightness, noise = others
    front_m = np.add(gap.front_m, aside)
    return replace(
        gap,
        yaw_deg=gap.yaw_deg + yaw,
        gain=_within("gain", gap.gain * gain),
        deadband=_within("deadband", gap.deadband + deadband),
        front_m=(float(front_m[0]), float(front_m[1]), float(front_m[2])),
        front_yaw_deg=gap.front_yaw_deg + front,
        wrist_m=(gap.wrist_m[0], gap.wrist_m[1] + wrist, gap.wrist_m[2]),
        friction=_within("friction", gap.friction * friction),
        mass=_within("mass", gap.mass * mass),
        latency_steps=_within("latency_steps", gap.latency_steps + int(late >= 0.0)),
        dropped=_within("dropped", gap.dropped + dropped),
        damping=_within("damping", gap.damping * damping),
        brightness=_within("brightness", gap.brightness * brightness),
        camera_noise=_within("camera_noise", gap.camera_noise + noise),
    )


def _within[Number: (int, float)](name: str, value: Number) -> Number:
    low, high = _RANGES[name]
    return type(value)(min(max(value, low), high))


def deviations(place: Sequence[float]) -> dict[str, float]:
    """Return what ``place`` (15,) means, by the names of ``DEVIATIONS``.

    Raises:
        InvalidInputError: it is no place.
    """
    if len(place) != len(DEVIATIONS) or not all(0.0 <= at <= 1.0 for at in place):
        raise InvalidInputError(f"place: {tuple(place)}, expected {len(DEVIATIONS)} numbers from 0 to 1")
    return {name: low + at * (high - low) for at, (name, (low, high)) in zip(place, DEVIATIONS.items(), strict=True)}


def varied(gap: Gap, seed: int) -> Gap:
    """Return ``gap`` with deviations drawn from ``seed``."""
    return deviated(gap, drawn_place(seed))


def drawn_place(seed: int) -> tuple[float, ...]:
    """Return the place (15,) whose deviations ``seed`` stands for."""
    return tuple(np.random.default_rng([zlib.crc32(b"gap"), seed]).random(len(DEVIATIONS)).tolist())
