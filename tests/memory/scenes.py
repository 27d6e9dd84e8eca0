"""A downward camera over a flat table, and objects as a detector reports them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from engram.core.types import EMBEDDING_DIM, DetectedObject, Pose, SceneObservation

IDENTITY = np.array([1.0, 0.0, 0.0, 0.0])
COLORS = {"red": (1.0, 0.0, 0.0), "green": (0.0, 1.0, 0.0), "blue": (0.0, 0.0, 1.0)}
CAMERA_HEIGHT = 1.0
"""Optical centre 1 m above (0.5, 0, 0), looking straight down: depth of a point = 1 - z."""
CAMERA = Pose(np.array([0.5, 0.0, CAMERA_HEIGHT]), np.array([0.0, 1.0, 0.0, 0.0]))
INTRINSICS = np.array([[128.0, 0.0, 64.0], [0.0, 128.0, 64.0], [0.0, 0.0, 1.0]])


class WordEncoder:
    """A text is the normalised sum of one fixed random vector a word: equal words, equal direction."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return (n, 384) float32 of unit length."""
        rows = [sum(self._word(word) for word in text.lower().split()) for text in texts]
        return np.array([row / np.linalg.norm(row) for row in rows], np.float32)

    @staticmethod
    def _word(word: str) -> np.ndarray:
        return np.random.default_rng(zlib.crc32(word.encode())).normal(size=EMBEDDING_DIM)


def seen(
    label: str,
    place: Sequence[float] | np.ndarray,
    size: float = 0.04,
    score: float = 0.9,
    noise_m: float = 0.003,
    color: tuple[float, float, float] | None = None,
) -> DetectedObject:
    """Return a detected box of ``size`` m at ``place`` (3,) m."""
    return DetectedObject(
        label=label,
        score=score,
        pose=Pose(np.asarray(place, np.float64), IDENTITY),
        position_covariance=np.eye(3) * noise_m**2,
        size=np.full(3, size),
        color=np.array(color or COLORS.get(label.split()[0], (0.5, 0.5, 0.5))),
        embedding=WordEncoder().encode([label])[0],
    )


def view(
    objects: Sequence[DetectedObject],
    stamp_ns: int = 0,
    depth: float | np.ndarray = CAMERA_HEIGHT,
    camera: str = "front",
) -> SceneObservation:
    """Return what the downward camera saw; ``depth`` m is what it measured (default: the bare table)."""
    grid = np.broadcast_to(np.asarray(depth, np.float32), (32, 32))
    return SceneObservation(stamp_ns, camera, tuple(objects), CAMERA, INTRINSICS, (128, 128), grid)
