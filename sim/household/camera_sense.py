"""Sensing by rendered images: RGB-D frames through the real detector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from engram.core.contracts import Detector
from engram.core.geometry import scene_in_frame
from engram.core.types import CameraFrame, DetectedObject, Pose, SceneObservation
from engram.perception.embedding import TextEncoder
from engram.perception.geometric import GeometricDetector, GeometricDetectorConfig
from engram.perception.marks import MarkConfig
from engram.perception.region import detect_in
from engram.perception.segmentation import SegmentationConfig
from engram.perception.support import SupportConfig
from engram.sim.household.kinds import name_of
from engram.sim.household.layout import Spot
from engram.sim.household.tour import Sight, base_covariance, region_of
from engram.sim.household.world import HouseholdWorld

MATCH_M = 0.10
"""A detection farther than this from every thing is a false one."""


def household_detector(encoder: TextEncoder) -> GeometricDetector:
    """Return the geometric detector with a workspace that fits furniture in front of the base."""
    reach = SegmentationConfig(workspace_min=(0.3, -0.75), workspace_max=(1.4, 0.75))
    config = GeometricDetectorConfig(
        min_height_m=0.014,  # the camera is farther away than at the workbench, and its depth noisier
        support=SupportConfig(tolerance_m=0.01),
        segmentation=reach,
        marks=MarkConfig(enabled=False),
    )
    return GeometricDetector(config, encoder)


@dataclass(frozen=True)
class CameraNoise:
    """How a real RGB-D camera's pictures differ from rendered ones (a stereo camera's data sheet, roughly)."""

    depth_sigma: float = 0.002
    """Standard deviation of the depth at 1 m; grows with the square of the range [m]."""
    dropout: float = 0.02
    """Share of the pixels without a return."""
    color_sigma: float = 0.025
    """Standard deviation of a colour channel, of 0..1."""
    exposure: tuple[float, float] = (0.7, 1.25)
    """Brightness of a frame's picture, drawn between these."""


def degrade(frame: CameraFrame, rng: np.random.Generator, noise: CameraNoise) -> CameraFrame:
    """Return ``frame`` as a real camera would give it: depth noise, holes, flying pixels at edges, colour noise."""
    depth = np.array(frame.depth)
    beside = np.roll(depth, (int(rng.integers(-1, 2)), int(rng.integers(-1, 2))), (0, 1))
    mixed = rng.random(depth.shape) < 0.5  # half of the pixels at an edge take a depth between both sides
    depth = np.where(mixed & (np.abs(beside - depth) > 0.02), 0.5 * (depth + beside), depth)
    depth += noise.depth_sigma * depth**2 * rng.normal(size=depth.shape)
    depth[rng.random(depth.shape) < noise.dropout] = 0.0
    color = frame.color / 255.0 * rng.uniform(*noise.exposure) + noise.color_sigma * rng.normal(size=frame.color.shape)
    return replace(
        frame, depth=depth.astype(np.float32), color=(np.clip(color, 0.0, 1.0) * 255.0).round().astype(np.uint8)
    )


class CameraSense:
    """Renders, detects what is on the furniture looked at, and names what belongs to the household."""

    def __init__(
        self, encoder: TextEncoder, seed: int = 0, noise: CameraNoise | None = None, detector: Detector | None = None
    ) -> None:
        self._encoder = encoder
        self._detector = detector or household_detector(encoder)
        self._noise = noise or CameraNoise()
        self._rng = np.random.default_rng([seed, 3])

    def look(self, world: HouseholdWorld, views: Sequence[tuple[np.ndarray, Pose, int]], spot: Spot) -> list[Sight]:
        """Return what is seen in one rendered frame a view."""
        sights = []
        for true, base, stamp_ns in views:
            world.drive(true)
            frame = degrade(world.render(stamp_ns), self._rng, self._noise)
            scene = named(detect_in(self._detector, frame, region_of(spot, base)), self._encoder)
            scene = scene_in_frame(scene, base, base_covariance())
            sights.append(Sight(scene, oracle_match(scene.objects, world.oracle_positions(spot.name))))
        return sights


def named(scene: SceneObservation, encoder: TextEncoder) -> SceneObservation:
    """Return ``scene`` with the household's names; objects that match no kind (furniture) are left out."""
    objects = []
    for seen in scene.objects:
        name = name_of(seen.label)
        if name is not None:
            objects.append(replace(seen, label=name, embedding=encoder.encode([name])[0]))
    return replace(scene, objects=tuple(objects))


def oracle_match(objects: Sequence[DetectedObject], positions: Mapping[str, np.ndarray]) -> tuple[str | None, ...]:
    """Return the thing nearest to each detection, one to one and within ``MATCH_M``; None: a false detection."""
    things = list(positions)
    found: list[str | None] = [None] * len(objects)
    if not things or not objects:
        return tuple(found)
    places = np.array([seen.pose.position for seen in objects])
    apart = np.linalg.norm(places[:, None] - np.array([positions[t] for t in things])[None], axis=2)
    for i, j in zip(*linear_sum_assignment(np.minimum(apart, 2 * MATCH_M)), strict=True):
        if apart[i, j] <= MATCH_M:
            found[i] = things[j]
    return tuple(found)
