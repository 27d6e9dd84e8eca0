"""Sensing without rendering: visibility by ray casts, errors drawn from recorded looks of the real perception.

An empirical model (k nearest neighbours, bootstrap): a thing in view behaves, over the frames of one look, as one of
the recorded things of its shape that were seen under the most similar conditions. Errors that occur together in the
real pipeline (a miss or a wrong name in every frame of a look) therefore occur together here, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from engram.core.geometry import make_pose, rotation, scene_in_frame
from engram.core.types import DetectedObject, Pose, SceneObservation
from engram.perception.embedding import TextEncoder
from engram.perception.region import attend
from engram.sim.household.kinds import BY_NAME, Kind, name_of
from engram.sim.household.layout import Spot
from engram.sim.household.sensor_record import SensorRecord, false_object, features
from engram.sim.household.tour import Sight, base_covariance, region_of
from engram.sim.household.world import EYE, HEIGHT, WIDTH, HouseholdWorld, Placement, camera_intrinsics

GRID = (24, 32)
"""Rows and columns of the depth grid."""
NEIGHBOURS = 8
"""A look is drawn from this many of the most similar recorded ones."""
SCALE = np.array([2.0, 1.5, 6.0, 1.0])
"""How the four features weigh against each other."""
LEAST_SHARE = 0.05
"""What is hidden more than this is never seen."""


class ModelSense:
    """Looks by ray casts into the world's geometry and errors from ``record``; its draws depend on ``seed`` only."""

    def __init__(self, record: SensorRecord, encoder: TextEncoder, seed: int = 0) -> None:
        self._record, self._encoder = record, encoder
        self._rng = np.random.default_rng([seed, 4])
        self._rows = {shape: np.flatnonzero(record.shape == shape) for shape in np.unique(record.shape)}
        self._trees = {shape: cKDTree(record.features[rows] * SCALE) for shape, rows in self._rows.items()}
        k = camera_intrinsics()
        v, u = np.meshgrid(*((np.arange(n) + 0.5) * size / n for n, size in zip(GRID, (HEIGHT, WIDTH), strict=True)),
                           indexing="ij")  # fmt: skip
        self._grid = np.stack(((u - k[0, 2]) / k[0, 0], (v - k[1, 2]) / k[1, 1], np.ones_like(u)), -1).reshape(-1, 3)

    def look(self, world: HouseholdWorld, views: Sequence[tuple[np.ndarray, Pose, int]], spot: Spot) -> list[Sight]:
        """Return what is seen of ``spot``, one frame a view."""
        placed = world.oracle_placements(spot.name)
        things = list(placed)
        told, share = features(world, spot, things, [true for true, _, _ in views])
        drawn = [self._draw(world.things[thing], row) for thing, row in zip(things, told, strict=True)]
        false = self._draw_false(spot)
        sights = []
        for f, (true, base, stamp_ns) in enumerate(views):
            world.drive(true)
            found: list[tuple[DetectedObject, str | None]] = [
                (self._detect(world.things[thing], placed[thing], spot, row, f), thing)
                for thing, row, visible in zip(things, drawn, share[:, f], strict=True)
                if self._record.seen[row, f] and visible > LEAST_SHARE
            ]
            for i in false:
                if self._record.false_frame[i] == f:
                    label = str(self._record.false_label[i])
                    found.append((false_object(self._record, i, spot, self._encoder.encode([label])[0]), None))
            scene = self._scene(world, spot, true, base, stamp_ns, [one for one, _ in found])
            sights.append(Sight(scene, tuple(thing for _, thing in found)))
        return sights

    def _draw(self, kind: Kind, told: np.ndarray) -> int:
        rows = self._rows[kind.shape]
        _, near = self._trees[kind.shape].query(told * SCALE, k=min(NEIGHBOURS, len(rows)))
        return int(rows[self._rng.choice(np.atleast_1d(near))])

    def _draw_false(self, spot: Spot) -> np.ndarray:
        """Return the rows of the false detections of one recorded look at such a spot."""
        alike = np.flatnonzero(self._record.looks == spot.kind)
        look = self._rng.choice(alike if len(alike) else len(self._record.looks))
        return np.flatnonzero(self._record.false_look == look)

    def _detect(self, kind: Kind, at: Placement, spot: Spot, row: int, f: int) -> DetectedObject:
        """Return what perception makes of a thing: its true place and looks with the errors of one recorded frame."""
        record, turn = self._record, spot.axes()
        taken_for = BY_NAME[str(record.label[row, f])]
        color = kind.color if taken_for.color == record.color[row] else taken_for.color
        label = name_of(f"{color} {taken_for.shape}") or kind.name
        covariance = record.covariance[row, f]
        return DetectedObject(
            label=label,
            score=float(record.score[row, f]),
            pose=make_pose(at.position + turn @ record.error[row, f], Rotation.from_euler("z", at.yaw), "map"),
            position_covariance=turn @ covariance @ turn.T,
            size=np.array([*np.sort(kind.size[:2]), kind.size[2]]) * record.size[row, f],
            color=np.clip(kind.rgb + record.tint[row, f], 0.0, 1.0),
            embedding=self._encoder.encode([label])[0],
        )

    def _scene(
        self, world: HouseholdWorld, spot: Spot, true: np.ndarray, base: Pose, stamp_ns: int,
        objects: Sequence[DetectedObject],
    ) -> SceneObservation:  # fmt: skip
        """Return the frame as the robot places it: seen from where it is, put where it believes to be."""
        really = make_pose(np.array([*true[:2], 0.0]), Rotation.from_euler("z", float(true[2])), "map")
        back = rotation(really).inv()
        in_base = []
        for one in objects:
            turned = back.as_matrix() @ one.position_covariance @ back.as_matrix().T
            place = back.apply(one.pose.position - really.position)
            in_base.append(replace(one, pose=make_pose(place, back * rotation(one.pose)), position_covariance=turned))
        distance, _ = world.cast(self._grid @ rotation(world.oracle_eye()).as_matrix().T)
        depth = np.where(np.isfinite(distance), distance, 0.0).reshape(GRID).astype(np.float32)
        scene = SceneObservation(stamp_ns, "eye", tuple(in_base), EYE, camera_intrinsics(), (WIDTH, HEIGHT), depth)
        return scene_in_frame(attend(scene, region_of(spot, base)), base, base_covariance())
