"""Where are a robot's cameras? Pictures of its arm are compared with those of a simulated arm in the same posture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
from scipy.ndimage import gaussian_filter

from engram.core.robot import RobotConfig
from engram.sim.gaps import Gap
from engram.sim.replica import Replica
from engram.validation.robust_fit import Fit, rms, robust_fit

CAMERAS = ("front", "wrist")
"""Those that a gap can have moved."""
STEPS = (0.01, 0.01, 0.01, 1.0, 0.003, 0.003, 0.003)
"""A change that matters of: the front camera's x, y, z [m] and turn [deg], the wrist camera's x, y, z [m]."""
PASSES = ((4.0, 4, 0.3), (1.5, 2, 0.05))
"""Blur [px], every how many pixels, and a usual error of a grey value (0..1): far moves are found first, then small
ones. Things on the table, which the simulated table has not, make larger errors; they count little."""
ALIKE = 0.5
"""Correlation of recorded and simulated pictures below which nothing can be told."""


@dataclass(frozen=True)
class Shot:
    """What the cameras saw at one control step."""

    group: int
    """Of its episode: shots of one episode go together."""
    state: np.ndarray
    """(8 + n,) of the policy."""
    images: Mapping[str, np.ndarray]
    """Camera -> (H, W, 3) uint8."""


@dataclass(frozen=True)
class CameraFit:
    """Where the cameras are."""

    fit: Fit
    """Of the values that STEPS lists."""
    front_m: np.ndarray
    """Where the front camera is in the simulation (3,) m."""
    why_not: str
    """Why the values tell nothing; empty: they do."""


def fit_cameras(shots: Sequence[Shot], robot: RobotConfig) -> CameraFit:
    """Return the displacements of the cameras at which a simulated arm looks most as in ``shots``."""
    size = next(iter(shots[0].images.values())).shape[0]
    with closing(Replica(robot, size)) as replica:
        joints = [replica.place(shot.state) for shot in shots]
        front_m = np.array(replica.model.camera("front").pos)
        shown = replica.put(joints[0])
        names = [name for name in CAMERAS if all(name in shot.images for shot in shots)]
        odd = [f"{name} {shots[0].images[name].shape}" for name in names]
        if not names or any(shots[0].images[name].shape != shown[name].shape for name in names):
            told = f"{robot.name} has pictures front and wrist of {size} px, the record {', '.join(odd) or 'neither'}"
            return CameraFit(Fit(np.zeros(len(STEPS)), np.full(len(STEPS), np.inf), 0.0, 0.0, 0.0), front_m, told)
        return _fit(shots, names, replica, joints, front_m)


def _fit(
    shots: Sequence[Shot], names: Sequence[str], replica: Replica, joints: Sequence[np.ndarray], front_m: np.ndarray
) -> CameraFit:
    groups = [shot.group for shot in shots]

    def pictures(values: np.ndarray, blur: float, every: int) -> np.ndarray:
        replica.become(_gap(values))
        shown = [replica.put(each) for each in joints]
        return np.stack([[_seen(one[name], blur, every) for name in names] for one in shown])

    values = np.zeros(len(STEPS))
    for blur, every, scale in PASSES:
        real = np.stack([[_seen(shot.images[name], blur, every) for name in names] for shot in shots])

        def errors(at: np.ndarray, blur: float = blur, every: int = every, real: np.ndarray = real) -> list[np.ndarray]:
            left = pictures(at, blur, every) - real
            return [left[[g == group for g in groups]] for group in dict.fromkeys(groups)]

        fit = robust_fit(errors, values, STEPS, scale)
        values = fit.values
    alike = _correlation(pictures(values, *PASSES[-1][:2]), real)
    why_not = "" if alike >= ALIKE else f"the simulation's pictures look otherwise (correlation {alike:.2f})"
    return CameraFit(replace(fit, before=rms(errors(np.zeros(len(STEPS))))), front_m, why_not)


def _gap(values: np.ndarray) -> Gap:
    x, y, z, yaw, *wrist = (float(value) for value in values)
    return Gap(front_m=(x, y, z), front_yaw_deg=yaw, wrist_m=(wrist[0], wrist[1], wrist[2]))


def _seen(image: np.ndarray, blur: float, every: int) -> np.ndarray:
    """Return ``image`` (H, W, 3) uint8 blurred and thinned, 0..1."""
    return gaussian_filter(image.astype(np.float32) / 255.0, (blur, blur, 0))[::every, ::every]


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Return how far two sets of pictures (n, cameras, h, w, 3) vary together over places and shots."""
    a, b = (each - each.mean(axis=(2, 3), keepdims=True) for each in (one, other))
    return float((a * b).sum() / max(np.sqrt((a * a).sum() * (b * b).sum()), 1e-9))
