"""What the real perception made of rendered frames, look by look: the data that the sensor model is fitted to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from engram.core.geometry import rotation
from engram.core.types import DetectedObject, Pose
from engram.sim.household.kinds import Kind
from engram.sim.household.layout import Spot
from engram.sim.household.life import Life
from engram.sim.household.tour import VIEWS_M, Inspector, Sight, TourConfig, base_covariance, views_of
from engram.sim.household.world import HouseholdWorld, half_view

FRAMES = len(VIEWS_M)
EXACT = TourConfig(place_sigma_m=0.0, yaw_sigma_rad=0.0, open_chance=1.0)
"""A robot that knows exactly where it is: what is recorded are the errors of perception alone."""


@dataclass(frozen=True)
class SensorRecord:
    """n things looked at in F frames each, and m false detections in the same looks. Axes are those of the spot."""

    shape: np.ndarray  # (n,) str
    color: np.ndarray  # (n,) str
    features: np.ndarray  # (n, 4): see :func:`features`
    seen: np.ndarray  # (n, F) bool
    label: np.ndarray  # (n, F) str, name of the kind it was taken for
    error: np.ndarray  # (n, F, 3) m
    size: np.ndarray  # (n, F, 3) measured / true extents
    tint: np.ndarray  # (n, F, 3) measured - true colour
    score: np.ndarray  # (n, F)
    covariance: np.ndarray  # (n, F, 3, 3) m^2, as perception told it
    looks: np.ndarray  # (k,) str: kind of spot of every look
    false_look: np.ndarray  # (m,) int, index into looks
    false_frame: np.ndarray  # (m,) int
    false_label: np.ndarray  # (m,) str
    false_place: np.ndarray  # (m, 3) m
    false_size: np.ndarray  # (m, 3) m
    false_color: np.ndarray  # (m, 3)
    false_score: np.ndarray  # (m,)

    def save(self, path: Path) -> None:
        """Write all columns into one npz file."""
        np.savez_compressed(path, **{f.name: getattr(self, f.name) for f in fields(self)})

    @classmethod
    def load(cls, path: Path) -> SensorRecord:
        """Read what :meth:`save` wrote."""
        with np.load(path, allow_pickle=False) as stored:
            return cls(**{f.name: stored[f.name] for f in fields(cls)})


def features(
    world: HouseholdWorld, spot: Spot, things: Sequence[str], bases: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return what decides how well ``things`` on ``spot`` are seen from ``bases``, from the simulator's geometry.

    Returns:
        (n, 4): mean visible share, depth (m), free distance to the nearest other thing (m, at most 0.2), whether
        inside furniture; and the visible share of each in each frame (n, F). The base is left at the last view.
    """
    places = world.oracle_positions(spot.name)
    share, depth = np.zeros((len(things), len(bases))), np.zeros((len(things), len(bases)))
    for f, base in enumerate(bases):
        world.drive(base)
        share[:, f], depth[:, f] = _visible(world, [(t, places[t], world.things[t]) for t in things])
    gap = np.full(len(things), 0.2)
    for i, thing in enumerate(things):
        apart = [float(np.linalg.norm((places[thing] - at)[:2])) for other, at in places.items() if other != thing]
        gap[i] = min([0.2, *(a - 0.07 for a in apart)])
    inside = np.full(len(things), float(spot.closed))
    return np.column_stack((share.mean(axis=1), depth.mean(axis=1), gap, inside)), share


_SIDES, _HEIGHTS = (-0.35, 0.0, 0.35), (-0.3, 0.0, 0.35)


def _visible(world: HouseholdWorld, things: Sequence[tuple[str, np.ndarray, Kind]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the share (n,) of nine points across each thing that the eye sees, and its depth (n,) m."""
    eye = world.oracle_eye()
    turn = rotation(eye).as_matrix()
    right = turn[:, 0]
    points = [
        at + side * kind.size[0] * right + np.array([0.0, 0.0, height * kind.size[2]])
        for _, at, kind in things
        for side in _SIDES
        for height in _HEIGHTS
    ]
    if not points:
        return np.zeros(0), np.zeros(0)
    rays = np.array(points) - eye.position
    _, body = world.cast(rays)
    own = np.repeat([world.body[name] for name, _, _ in things], len(_SIDES) * len(_HEIGHTS))
    local = (rays @ turn).reshape(len(things), -1, 3)
    framed = (np.abs(local[..., :2] / local[..., 2:]) < half_view()).all(axis=-1)
    return ((body == own).reshape(framed.shape) & framed).mean(axis=1), local[:, 4, 2]


def record_looks(world: HouseholdWorld, life: Life, inspector: Inspector, stamps: Iterable[int]) -> SensorRecord:
    """Let ``inspector`` (:data:`EXACT`, with rendered images) visit at ``stamps`` and record what it saw."""
    rows: list[tuple] = []
    looks: list[str] = []
    false: list[tuple] = []
    for stamp_ns in stamps:
        life.advance(stamp_ns)
        world.arrange(life.oracle_placements())
        for name, sights in inspector.visit(stamp_ns):
            spot = world.home.spots[name]
            things = list(world.oracle_positions(name))
            told, _ = features(world, spot, things, views_of(spot))
            for thing, feature in zip(things, told, strict=True):
                rows.append((life.things[thing], feature, *_outcomes(world, spot, thing, sights)))
            for f, sight in enumerate(sights):
                wrong = [o for o, t in zip(sight.scene.objects, sight.oracle_things, strict=True) if t is None]
                false += [
                    (len(looks), f, o.label, spot.to_local(o.pose.position), o.size, o.color, o.score) for o in wrong
                ]
            looks.append(spot.kind)
    return _columns(rows, looks, false)


def _outcomes(world: HouseholdWorld, spot: Spot, thing: str, sights: Sequence[Sight]) -> tuple[np.ndarray, ...]:
    seen, label = np.zeros(FRAMES, bool), np.full(FRAMES, "", "U32")
    error, size, tint = np.zeros((FRAMES, 3)), np.ones((FRAMES, 3)), np.zeros((FRAMES, 3))
    score, covariance = np.zeros(FRAMES), np.tile(np.eye(3) * 1e-5, (FRAMES, 1, 1))
    kind, true = world.things[thing], world.oracle_positions(spot.name)[thing]
    turn = spot.axes()
    for f, sight in enumerate(sights):
        if thing not in sight.oracle_things:
            continue
        found = sight.scene.objects[sight.oracle_things.index(thing)]
        assert found.size is not None and found.color is not None and found.position_covariance is not None
        seen[f], label[f], score[f] = True, found.label, found.score
        error[f] = turn.T @ (found.pose.position - true)
        size[f], tint[f] = [*np.sort(found.size[:2]).tolist(), found.size[2]], found.color - kind.rgb
        size[f] /= [*np.sort(kind.size[:2]), kind.size[2]]
        covariance[f] = turn.T @ (found.position_covariance - base_covariance()) @ turn
    return seen, label, error, size, tint, score, covariance


def _columns(rows: list[tuple], looks: list[str], false: list[tuple]) -> SensorRecord:
    kinds, *columns = zip(*rows, strict=True)
    told, seen, label, error, size, tint, score, covariance = (np.array(column) for column in columns)
    wrong = list(zip(*false, strict=True)) if false else [()] * 7
    false_place, false_size, false_color = (np.array(column, float).reshape(-1, 3) for column in wrong[3:6])
    return SensorRecord(
        shape=np.array([kind.shape for kind in kinds]),
        color=np.array([kind.color for kind in kinds]),
        features=told,
        seen=seen,
        label=label,
        error=error,
        size=size,
        tint=tint,
        score=score,
        covariance=covariance,
        looks=np.array(looks),
        false_look=np.array(wrong[0], int),
        false_frame=np.array(wrong[1], int),
        false_label=np.array(wrong[2], "U32"),
        false_place=false_place,
        false_size=false_size,
        false_color=false_color,
        false_score=np.array(wrong[6], float),
    )


def join(records: Sequence[SensorRecord]) -> SensorRecord:
    """Return all looks of ``records`` as one."""
    start = np.cumsum([0, *(len(r.looks) for r in records)])
    columns = {f.name: np.concatenate([getattr(r, f.name) for r in records]) for f in fields(SensorRecord)}
    columns["false_look"] = np.concatenate([r.false_look + s for r, s in zip(records, start, strict=False)])
    return SensorRecord(**columns)


def false_object(record: SensorRecord, i: int, spot: Spot, embedding: np.ndarray) -> DetectedObject:
    """Return the ``i``-th false detection as if it had happened on ``spot``, in the map."""
    half = 0.5 * np.array([spot.depth, spot.width, 1.0])
    place = spot.to_map(np.clip(record.false_place[i], -half, half))
    return DetectedObject(
        label=str(record.false_label[i]),
        score=float(record.false_score[i]),
        pose=Pose(place, np.array([1.0, 0.0, 0.0, 0.0]), "map"),
        position_covariance=np.eye(3) * 1e-4,
        size=record.false_size[i],
        color=np.clip(record.false_color[i], 0.0, 1.0),
        embedding=embedding,
    )
