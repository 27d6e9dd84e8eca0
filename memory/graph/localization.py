"""Does the robot stand where it thinks? Things that stayed are its landmarks: when most of those in view are displaced
alike, it is the robot's own place that jumped, not the world."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from engram.memory.storage.se2 import PlaneTransform, fit


@dataclass(frozen=True)
class LocalisationConfig:
    """When a scene is refused."""

    landmarks_min: int = 4
    """Fewer things of their own name, known well and seen again, say nothing."""
    share: float = 0.6
    """Least share of the landmarks that one jump explains; or that stand in their places, and clear the suspicion."""
    jump_m: float = 0.25
    """A smaller displacement is noise, or the robot's to correct."""
    inlier_m: float = 0.10
    """A landmark this far from where the jump would put it still supports it."""
    reach_m: float = 5.0
    """A thing this far from its place is another one of its kind."""


class Localisation:
    """Checks one scene after another; remembers what it refused.

    Things that were carried off together look the same. What tells them apart: after a scene in which the landmarks of
    another spot are in their places, the same displacement is believed.
    """

    def __init__(self, config: LocalisationConfig | None = None) -> None:
        self.config = config or LocalisationConfig()
        self._refused: PlaneTransform | None = None
        self._cleared = False

    def jumped(self, seen: np.ndarray, known: np.ndarray) -> PlaneTransform | None:
        """Return by what transform of known places (n, 3) m the seen ones (n, 3) m come about, if that is a jump."""
        config, count = self.config, len(seen)
        if count < config.landmarks_min:
            return None
        apart = np.linalg.norm(seen - known, axis=1)
        if (apart <= config.jump_m).mean() >= config.share:
            self._cleared = self._refused is not None
            return None
        found = _consensus(seen, known, config.inlier_m)
        needed = max(config.landmarks_min, config.share * count)
        if found.inliers < needed or np.median(apart) <= config.jump_m:
            return None
        if self._cleared and self._refused is not None and self._alike(found, self._refused, known):
            self._refused, self._cleared = None, False
            return None
        self._refused, self._cleared = found, False
        return found

    def _alike(self, one: PlaneTransform, other: PlaneTransform, places: np.ndarray) -> bool:
        apart = np.linalg.norm(one.apply(places) - other.apply(places), axis=1)
        return bool(np.median(apart) <= 2 * self.config.inlier_m)


def _consensus(seen: np.ndarray, known: np.ndarray, inlier_m: float) -> PlaneTransform:
    """Return the transform that most pairs support (RANSAC of Fischler and Bolles, 1981, over all pairs of the first 12
    landmarks: nothing is drawn)."""
    best, most = np.ones(len(seen), bool), -1
    for i, j in itertools.combinations(range(min(12, len(seen))), 2):
        guess = fit(seen[[i, j]], known[[i, j]])
        inliers = np.linalg.norm(seen - guess.apply(known), axis=1) <= inlier_m
        if inliers.sum() > most:
            best, most = inliers, int(inliers.sum())
    return replace(fit(seen[best], known[best]), inliers=most)
