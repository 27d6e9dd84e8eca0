"""One lived-in home, and a record of a perception with errors that a test can compute."""

from __future__ import annotations

import numpy as np

from engram.sim.household.kinds import KINDS
from engram.sim.household.layout import SURFACES, make_home
from engram.sim.household.life import HOUR_NS, Life
from engram.sim.household.sensor_record import FRAMES, SensorRecord
from engram.sim.household.world import HouseholdWorld

ERROR = np.array([0.01, -0.02, 0.003])
"""Of every detection of :func:`perfect_record`, along the spot's axes [m]."""


def lived_in(seed: int = 7) -> tuple[Life, HouseholdWorld]:
    """Return a home at nine o'clock of its first day."""
    home = make_home(seed)
    life = Life(home, seed)
    world = HouseholdWorld(home, life.things)
    life.advance(9 * HOUR_NS)
    world.arrange(life.oracle_placements())
    return life, world


def perfect_record(missed_frame: int | None = None) -> SensorRecord:
    """Return one look a kind: seen in every frame but ``missed_frame``, right name, off by ``ERROR``; nothing false."""
    n = len(KINDS)
    seen = np.ones((n, FRAMES), bool)
    if missed_frame is not None:
        seen[:, missed_frame] = False
    return SensorRecord(
        shape=np.array([kind.shape for kind in KINDS]),
        color=np.array([kind.color for kind in KINDS]),
        features=np.zeros((n, 4)),
        seen=seen,
        label=np.array([[kind.name] * FRAMES for kind in KINDS]),
        error=np.tile(ERROR, (n, FRAMES, 1)),
        size=np.ones((n, FRAMES, 3)),
        tint=np.zeros((n, FRAMES, 3)),
        score=np.full((n, FRAMES), 0.9),
        covariance=np.tile(np.eye(3) * 1e-5, (n, FRAMES, 1, 1)),
        looks=np.array([*SURFACES, "drawer", "cupboard"]),
        false_look=np.zeros(0, int),
        false_frame=np.zeros(0, int),
        false_label=np.zeros(0, "U32"),
        false_place=np.zeros((0, 3)),
        false_size=np.zeros((0, 3)),
        false_color=np.zeros((0, 3)),
        false_score=np.zeros(0),
    )
