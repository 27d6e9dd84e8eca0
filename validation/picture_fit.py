"""Where are a robot's cameras, and how bright is it? Pictures of its arm are compared with those of a simulated arm.

The simulated arm is in the same posture. Cameras are found by whole pictures, as bright as the arm is. The brightness
is found by the arm alone: its colours are known, those of a table are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.ndimage import binary_erosion, gaussian_filter

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
BRIGHTER, DARKEST, BRIGHTEST = 0.05, 0.05, 20.0
"""A change of the brightness that is small, and the bounds within which it is looked for."""
EDGE = 2
"""So many pixels along the edge of the arm do not tell the brightness: something else may be seen there [px]."""
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
class PictureFit:
    """Where the cameras are, and how bright it is."""

    fit: Fit
    """Of the values that STEPS lists."""
    brightness: Fit
    """Of the brightness of all lamps, of the nominal one."""
    front_m: np.ndarray
    """Where the front camera is in the simulation (3,) m."""
    why_not: str
    """Why the values tell nothing; empty: they do."""


def fit_pictures(shots: Sequence[Shot], robot: RobotConfig) -> PictureFit:
    """Return where the cameras are, and how bright it is, where a simulated arm looks most as in ``shots``."""
    size = next(iter(shots[0].images.values())).shape[0]
    with closing(Replica(robot, size)) as replica:
        joints = [replica.place(shot.state) for shot in shots]
        front_m = np.array(replica.model.camera("front").pos)
        shown = replica.put(joints[0])
        names = [name for name in CAMERAS if all(name in shot.images for shot in shots)]
        odd = [f"{name} {shots[0].images[name].shape}" for name in names]
        if not names or any(shots[0].images[name].shape != shown[name].shape for name in names):
            told = f"{robot.name} has pictures front and wrist of {size} px, the record {', '.join(odd) or 'neither'}"
            return PictureFit(_untold(len(STEPS)), _untold(1), front_m, told)
        return _Comparison(shots, names, replica, joints).fit(front_m)


def _untold(count: int) -> Fit:
    return Fit(np.zeros(count), np.full(count, np.inf), 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class _Comparison:
    """Pictures of a robot, and the simulated arm in the same postures."""

    shots: Sequence[Shot]
    names: Sequence[str]
    """Of the cameras."""
    replica: Replica
    joints: Sequence[np.ndarray]
    """All joints of the replica at each shot, n of (q,)."""

    def fit(self, front_m: np.ndarray) -> PictureFit:
        """Return what the pictures tell: by turns how bright the arm is and where the cameras are."""
        values = np.zeros(len(STEPS))
        light = self._brightness(Gap(), PASSES[0][-1])
        for blur, every, scale in PASSES:
            lit, seen = Gap(brightness=float(light.values[0])), self._seen(blur, every)
            fit = robust_fit(partial(self._errors, lit, blur, every, seen), values, STEPS, scale)
            values = fit.values
            light = self._brightness(_placed(lit, values), scale)
        found = _placed(Gap(brightness=float(light.values[0])), values)
        alike = _correlation(self._simulated(found, blur, every), seen)
        why_not = "" if alike >= ALIKE else f"the simulation's pictures look otherwise (correlation {alike:.2f})"
        before = rms(self._errors(Gap(), blur, every, seen, np.zeros(len(STEPS))))
        return PictureFit(replace(fit, before=before), light, front_m, why_not)

    def _errors(self, gap: Gap, blur: float, every: int, seen: np.ndarray, values: np.ndarray) -> list[np.ndarray]:
        """Return what simulated pictures, with cameras at ``values``, leave of those that were ``seen``."""
        return self._by_episode(self._simulated(_placed(gap, values), blur, every) - seen)

    def _simulated(self, gap: Gap, blur: float, every: int) -> np.ndarray:
        self.replica.become(gap)
        shown = [self.replica.put(each) for each in self.joints]
        return np.stack([[_thinned(one[name], blur, every) for name in self.names] for one in shown])

    def _seen(self, blur: float, every: int) -> np.ndarray:
        return np.stack([[_thinned(shot.images[name], blur, every) for name in self.names] for shot in self.shots])

    def _brightness(self, start: Gap, scale: float) -> Fit:
        """Return the brightness at which the arm is as bright as it was seen by cameras that are where ``start`` says.

        Where no arm is seen, nothing depends on it: it stays as in ``start``, and its interval is infinite.
        """
        self.replica.become(start)
        arms = [
            {name: binary_erosion(arm, iterations=EDGE) for name, arm in self.replica.shape(each).items()}
            for each in self.joints
        ]

        def of_arm(images: Mapping[str, np.ndarray], arm: Mapping[str, np.ndarray]) -> np.ndarray:
            return np.concatenate([images[name][arm[name]].ravel() / 255.0 for name in self.names] + [np.zeros(1)])

        seen = [of_arm(shot.images, arm) for shot, arm in zip(self.shots, arms, strict=True)]

        def errors(at: np.ndarray) -> list[np.ndarray]:
            self.replica.become(replace(start, brightness=float(at[0])))
            shown = [of_arm(self.replica.put(each), arm) for each, arm in zip(self.joints, arms, strict=True)]
            return self._by_episode([one - other for one, other in zip(shown, seen, strict=True)])

        return robust_fit(errors, (start.brightness,), (BRIGHTER,), scale, ((DARKEST,), (BRIGHTEST,)))

    def _by_episode(self, left: Sequence[np.ndarray] | np.ndarray) -> list[np.ndarray]:
        """Return what is ``left`` of each shot, an array for each episode."""
        groups: dict[int, list[np.ndarray]] = {}
        for shot, one in zip(self.shots, left, strict=True):
            groups.setdefault(shot.group, []).append(np.ravel(one))
        return [np.concatenate(group) for group in groups.values()]


def _placed(gap: Gap, values: np.ndarray) -> Gap:
    """Return ``gap`` with the cameras at ``values``, as STEPS lists them."""
    x, y, z, yaw, *wrist = (float(value) for value in values)
    return replace(gap, front_m=(x, y, z), front_yaw_deg=yaw, wrist_m=(wrist[0], wrist[1], wrist[2]))


def _thinned(image: np.ndarray, blur: float, every: int) -> np.ndarray:
    """Return ``image`` (H, W, 3) uint8 blurred and thinned, 0..1."""
    return gaussian_filter(image.astype(np.float32) / 255.0, (blur, blur, 0))[::every, ::every]


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Return how far two sets of pictures (n, cameras, h, w, 3) vary together over places and shots."""
    a, b = (each - each.mean(axis=(2, 3), keepdims=True) for each in (one, other))
    return float((a * b).sum() / max(np.sqrt((a * a).sum() * (b * b).sum()), 1e-9))
