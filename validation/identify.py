"""Which gap has a robot to the simulation? Its own record says (system identification).

Two things are compared with a simulated robot at an empty table: where the tool went after each action (calibration,
latency and damping of the motions), and how the arm looks in the pictures (where the cameras are, how bright it is).
Pictures alone tell how often one did not come, and, where nothing moves between two, how noisy they are. Friction and
masses of the things cannot be told from this; they stay as they were.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation
from scipy.stats import t as student

from engram.core.durable import write_atomic
from engram.core.errors import InvalidInputError
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.core.statistics import wilson
from engram.core.types import EE_ACTION_DIM, Transition
from engram.sim.gaps import Gap
from engram.sim.replica import Replica
from engram.validation.picture_fit import Shot, fit_pictures
from engram.validation.picture_noise import noise_between
from engram.validation.robust_fit import Fit, rms, robust_fit

LATENCIES = range(6)
"""Delays of commands that are compared [control steps]."""
WINDOW = 4
"""The tool's way over so many control steps is compared: what went wrong before does not add up."""
USUAL_M = 0.0003
"""A usual error of that way [m]; contacts make larger ones, which count little."""
COARSE_M = 0.003
"""The same while the calibration is still far off."""
MOTIONS = {"yaw_deg": 0.5, "gain": 0.01, "deadband": 0.003, "damping": 0.05}
"""What motions tell, and a change of each that is small."""
WIDE = 4.0
"""Derivatives are taken over so many small changes until the best values are near. Contacts and motions near the
deadband make them rough, and over less the search ends too early."""
LEAST, MOST = (-180.0, 0.05, 0.0, 0.2), (180.0, 20.0, 0.9, 50.0)
"""Bounds of the same."""
MOVING_RAD = 0.005
"""An arm moves in a control step in which a joint turns by more than this: then no two pictures are alike."""
PAIRS = 8
"""Two pictures in a row of each episode that are compared to tell the noise, about."""
FEWEST = 4
"""Episodes that are needed."""
ABOUT_BASE_M = 0.01
"""A front camera that seems displaced about the robot's base to within this has not moved: the robot stands turned."""
TURNED_DEG = 1.0
"""By so much at least."""


@dataclass(frozen=True)
class IdentificationConfig:
    """How much of a record is looked at."""

    episodes: int = 16
    """Episodes whose motions are compared, the newest."""
    shots: int = 32
    """Steps whose pictures are compared."""
    seed: int = 0
    """Which steps."""

    def __post_init__(self) -> None:
        for name in ("episodes", "shots"):
            if getattr(self, name) < FEWEST:
                raise InvalidInputError(
                    f"IdentificationConfig.{name}: {getattr(self, name)}, expected {FEWEST} or more"
                )


@dataclass(frozen=True)
class Estimate:
    """A value of a gap that was found, with its 95 % interval."""

    value: float
    low: float
    """Minus infinity where there were too few episodes to say, as ``high`` is infinity."""
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"

    def told(self) -> dict[str, float | None]:
        """Return it for JSON, which has no infinity: null."""
        return {name: value if math.isfinite(value) else None for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Identification:
    """What a record says of a robot's gap."""

    gap: Gap
    estimates: Mapping[str, Estimate]
    """By the names of the gap's values, ``front_m.x`` for parts of one; what is not here cannot be told."""
    untold: Mapping[str, str] = field(default_factory=dict)
    """What cannot be told, and why."""
    errors: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Root mean squared errors of motions [m] and pictures (0..1), before and after."""

    def write(self, path: Path, **about: Any) -> None:
        """Write the gap to ``path`` in one move, as ``engram.sim.gaps`` reads it, with what it rests on."""
        told = {name: one.told() for name, one in self.estimates.items()}
        found = {"estimates": told, "untold": dict(self.untold), "errors": dict(self.errors), **about}
        write_atomic(path, (json.dumps({"gap": asdict(self.gap), "found": found}, indent=1) + "\n").encode())


def identify(
    episodes: Sequence[Sequence[Transition]],
    start: Gap | None = None,
    config: IdentificationConfig | None = None,
    robot: RobotConfig = PANDA_2F85,
) -> Identification:
    """Return the gap of the robot that ``episodes`` are a record of.

    Args:
        episodes: transitions in order; the newest episodes last.
        start: gap whose other values stay; default: none.
        config: how much is looked at.
        robot: which one it is.

    Raises:
        InvalidInputError: there are too few episodes in which the tool moved by relative motions, or their state is
            that of another robot.
    """
    config, gap = config or IdentificationConfig(), start or Gap()
    runs = [run for episode in episodes for run in unbroken(episode) if len(run) > 2 * WINDOW][-config.episodes :]
    if len(runs) < FEWEST:
        raise InvalidInputError(
            f"identify: {len(runs)} unbroken runs of more than {2 * WINDOW} relative motions of the tool in "
            f"{len(episodes)} episodes, expected {FEWEST} or more: let the robot work first"
        )
    dims = {len(step.state) for run in runs for step in run}
    if dims != {robot.state_dim}:
        raise InvalidInputError(f"identify: states of {sorted(dims)} numbers, {robot.name} has {robot.state_dim}")
    estimates: dict[str, Estimate] = {}
    latency, motions = _fit_motions(runs, gap, robot)
    estimates |= {name: _estimate(motions, at) for at, name in enumerate(MOTIONS)}
    estimates["latency_steps"] = Estimate(latency, latency, latency)
    calibration: dict[str, Any] = {name: estimates[name].value for name in MOTIONS}
    gap = replace(gap, latency_steps=latency, **calibration)
    errors = {"motions_m": (motions.before, motions.after)}
    untold = {name: "nothing in the record depends on it enough" for name in ("friction", "mass")}
    untold["limits"] = "the record has what the limits let through"
    shots = _shots(episodes, config)
    why_not = "" if shots else "the record has no pictures of a moving arm"
    if shots:
        fitted = fit_pictures(shots, robot)
        errors["pictures"], why_not = (fitted.fit.before, fitted.fit.after), fitted.why_not
        if not why_not:
            gap, found = _with_cameras(gap, fitted.fit, fitted.front_m)
            estimates |= found
            estimates["brightness"] = _estimate(fitted.brightness, 0)
            gap = replace(gap, brightness=estimates["brightness"].value)
    if why_not:
        untold |= dict.fromkeys(("cameras", "brightness"), why_not)
    noise = _noise(runs, robot)
    if noise is not None:
        gap, estimates["camera_noise"] = replace(gap, camera_noise=noise.value), noise
    else:
        untold["camera_noise"] = "the record has no two pictures in a row of a camera that stands still"
    dropped = _dropped(runs)
    if dropped is not None:
        gap, estimates["dropped"] = replace(gap, dropped=dropped.value), dropped
    return Identification(gap, estimates, untold, errors)


def unbroken(episode: Sequence[Transition]) -> Iterator[list[Transition]]:
    """Yield the parts of ``episode`` in which no control step is missing and the tool was moved by relative motions."""
    gaps = np.diff([step.stamp_ns for step in episode])
    usual = float(np.median(gaps)) if len(gaps) else 0.0
    part: list[Transition] = []
    for step in episode:
        fits = len(step.executed_action) == EE_ACTION_DIM
        if part and (not fits or step.stamp_ns - part[-1].stamp_ns > 1.5 * usual):
            yield part
            part = []
        part += [step] * fits
    if part:
        yield part


def _fit_motions(runs: Sequence[Sequence[Transition]], gap: Gap, robot: RobotConfig) -> tuple[int, Fit]:
    """Return the latency [control steps] and the calibration at which a simulated tool goes the same way."""
    replica = Replica(robot)
    went = [np.array([step.state[:3] for step in run], float) for run in runs]
    actions = [[step.executed_action.astype(float) for step in run] for run in runs]

    def errors(latency: int, count: int, values: np.ndarray) -> list[np.ndarray]:
        calibration: dict[str, Any] = dict(zip(MOTIONS, values.tolist(), strict=True))
        replica.become(replace(gap, latency_steps=latency, **calibration))
        return [
            _ways(replica.replay(run[0].state, done)) - _ways(there)
            for run, done, there in zip(runs[:count], actions, went, strict=False)
        ]

    def fit(latency: int, count: int, start: np.ndarray, usual_m: float, evaluations: int, wide: float = WIDE) -> Fit:
        residuals, steps = partial(errors, latency, count), wide * np.array(list(MOTIONS.values()))
        return robust_fit(residuals, start, steps.tolist(), usual_m, (LEAST, MOST), evaluations)

    start = np.array([getattr(gap, name) for name in MOTIONS], float)
    tried = {latency: fit(latency, FEWEST, start, COARSE_M, 10) for latency in LATENCIES}
    best = min(tried, key=lambda latency: tried[latency].cost)
    near = fit(best, len(runs), tried[best].values, USUAL_M, 12)
    found = fit(best, len(runs), near.values, USUAL_M, 12, 1.0)
    return best, replace(found, before=rms(errors(gap.latency_steps, len(runs), start)))


def _ways(positions: np.ndarray) -> np.ndarray:
    """Return how far the tool went in every ``WINDOW`` of control steps (n, 3)."""
    return positions[WINDOW:] - positions[:-WINDOW]


def _estimate(fit: Fit, at: int) -> Estimate:
    value, half = float(fit.values[at]), float(fit.half[at])
    return Estimate(value, value - half, value + half)


def _with_cameras(gap: Gap, fit: Fit, front_m: np.ndarray) -> tuple[Gap, dict[str, Estimate]]:
    """Return ``gap`` with the cameras that pictures of the arm tell of, and what they tell.

    They tell where the front camera is as the robot sees it. If it stands just where a robot would see it that was
    turned on its place, then the robot was turned: one thing that changed, not four.
    """
    names = [*(f"front_m.{axis}" for axis in "xyz"), "front_yaw_deg", *(f"wrist_m.{axis}" for axis in "xyz")]
    found = {name: _estimate(fit, at) for at, name in enumerate(names)}
    yaw, aside = found["front_yaw_deg"], fit.values[:3]
    about_base = Rotation.from_euler("z", yaw.value, degrees=True).apply(front_m) - front_m
    if abs(yaw.value) > TURNED_DEG and float(np.linalg.norm(aside - about_base)) < ABOUT_BASE_M:
        found = {name: one for name, one in found.items() if not name.startswith("front")}
        found["mounted_deg"] = Estimate(-yaw.value, -yaw.high, -yaw.low)
        front: dict[str, Any] = {"mounted_deg": -yaw.value, "front_m": (0.0, 0.0, 0.0), "front_yaw_deg": 0.0}
    else:
        x, y, z = (float(value) for value in aside)
        front = {"mounted_deg": 0.0, "front_m": (x, y, z), "front_yaw_deg": yaw.value}
    x, y, z = (float(value) for value in fit.values[4:])
    return replace(gap, **front, wrist_m=(x, y, z)), found


def _shots(episodes: Sequence[Sequence[Transition]], config: IdentificationConfig) -> list[Shot]:
    """Return steps with pictures of their own, from as many episodes as possible, the newest."""
    rng, shots = np.random.default_rng(config.seed), list[Shot]()
    each = math.ceil(config.shots / max(1, min(len(episodes), config.shots)))
    for number, episode in enumerate(reversed(episodes)):
        fresh = [b for a, b in itertools.pairwise(episode) if b.images and _came(a, b) and not b.source.covered_cameras]
        for at in rng.choice(len(fresh), min(each, len(fresh)), replace=False).tolist():
            shots.append(Shot(number, fresh[at].state, fresh[at].images))
        if len(shots) >= config.shots:
            break
    return shots[: config.shots]


def _came(before: Transition, now: Transition) -> bool:
    """Tell whether the pictures of ``now`` are others than those of the step before."""
    return any(not np.array_equal(now.images[name], seen) for name, seen in before.images.items() if name in now.images)


def _dropped(runs: Sequence[Sequence[Transition]]) -> Estimate | None:
    """Return the share of control steps of a moving arm whose pictures did not come; None: there are no such."""
    pairs = [
        _came(a, b)
        for run in runs
        for a, b in itertools.pairwise(run)
        if a.images and b.images and float(np.abs(b.state[8:] - a.state[8:]).max()) > MOVING_RAD
    ]
    if not pairs:
        return None
    rate = wilson(pairs.count(False), len(pairs))
    return Estimate(rate.rate, rate.low, rate.high)


def _noise(runs: Sequence[Sequence[Transition]], robot: RobotConfig) -> Estimate | None:
    """Return the noise in the pictures of cameras that stand still; None: there are no two such pictures in a row."""
    fixed, found = [camera.name for camera in robot.cameras if camera.fixed], list[float]()
    for run in runs:
        pairs = [
            (a.images[name], b.images[name])
            for a, b in itertools.pairwise(run)
            for name in fixed
            if name in a.images and name in b.images and name not in a.source.covered_cameras + b.source.covered_cameras
        ]
        came = [(a, b) for a, b in pairs if not np.array_equal(a, b)]
        if came:
            found.append(float(np.median([noise_between(a, b) for a, b in came[:: max(1, len(came) // PAIRS)]])))
    if not found:
        return None
    value, half = float(np.mean(found)), math.inf
    if len(found) > 1:
        half = float(student.ppf(0.975, len(found) - 1) * np.std(found, ddof=1) / math.sqrt(len(found)))
    return Estimate(value, value - half, value + half)
