"""Fitting the household's sensor model to rendered frames, and holding it against a home it has not seen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from engram.perception.embedding import TextEncoder
from engram.sim.household.camera_sense import CameraSense
from engram.sim.household.kinds import name_of
from engram.sim.household.layout import make_home
from engram.sim.household.life import DAY_NS, HOUR_NS, VISIT_HOURS, Life
from engram.sim.household.sensor_model import ModelSense
from engram.sim.household.sensor_record import EXACT, SensorRecord, join, record_looks
from engram.sim.household.tour import Inspector, Sense
from engram.sim.household.world import HouseholdWorld

FIT_SEED, CHECK_SEED = 900, 990
ALLOWED = 0.04
"""The model's rates may be off by so much on a home that it was not fitted to."""


def record_home(seed: int, sense: Callable[[], Sense], days: int) -> SensorRecord:
    """Return what ``sense`` saw in the home of ``seed``, every spot opened and looked at three times a day."""
    life = Life(make_home(seed), seed)
    world = HouseholdWorld(life.home, life.things)
    stamps = [day * DAY_NS + hour * HOUR_NS for day in range(days) for hour in VISIT_HOURS]
    record = record_looks(world, life, Inspector(world, sense(), seed, EXACT), stamps)
    world.close()
    return record


def fit_sensor(encoder: TextEncoder, homes: int, days: int, folder: Path) -> tuple[SensorRecord, list[dict]]:
    """Return the sensor model's data and the figures of the fit; a fit that lies in ``folder`` is used again."""
    paths = [folder / f"sensor_{name}_{homes}_homes_{days}_days.npz" for name in ("fit", "real")]
    if not all(path.exists() for path in paths):
        seeds = range(FIT_SEED, FIT_SEED + homes)
        join([record_home(s, partial(CameraSense, encoder, s), days) for s in seeds]).save(paths[0])
        record_home(CHECK_SEED, lambda: CameraSense(encoder, CHECK_SEED), days).save(paths[1])
    record, real = (SensorRecord.load(path) for path in paths)
    model = record_home(CHECK_SEED, lambda: ModelSense(record, encoder, CHECK_SEED), days)
    return record, compare(real, model, len(record.shape))


def summary(record: SensorRecord) -> dict[str, float]:
    """Return what a sensor is judged by: rates (0..1) a thing and frame, and errors (m)."""
    kinds = np.array([name_of(f"{color} {shape}") for color, shape in zip(record.color, record.shape, strict=True)])
    error = np.linalg.norm(record.error[record.seen], axis=1)
    return {
        "detected": float(record.seen.mean()),
        "missed_whole_look": float((~record.seen.any(axis=1)).mean()),
        "named_right": float((record.label == kinds[:, None])[record.seen].mean()),
        "false_per_frame": len(record.false_look) / (len(record.looks) * record.seen.shape[1]),
        "error_p50_m": float(np.median(error)),
        "error_p90_m": float(np.percentile(error, 90)),
    }


def compare(real: SensorRecord, model: SensorRecord, n_fitted: int) -> list[dict]:
    """Return a figure for each property of the sensor: the model's, beside the real one's on the same home."""
    ours, theirs = summary(model), summary(real)
    rows = []
    for name, value in ours.items():
        allowed = 0.003 if name.endswith("_m") else ALLOWED
        rows.append(
            {
                "name": f"sensor_model_{name}",
                "value": round(value, 4),
                "interval": None,
                "n": len(real.seen),
                "target": f"{theirs[name]:.4f} (real pipeline) +- {allowed}",
                "met": abs(value - theirs[name]) <= allowed,
                "fitted_to": n_fitted,
            }
        )
    return rows
