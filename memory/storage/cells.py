"""Cells of 25 cm that space is divided into, each as one integer: where the robot has looked."""

from __future__ import annotations

import numpy as np

CELL_M = 0.25
SPAN = 1 << 20  # cells along each axis: 262 km
REACH_M = CELL_M * SPAN / 2
"""How far from the origin places may be, along each axis [m]."""


def pack(points: np.ndarray) -> np.ndarray:
    """Return one int64 a point (n, 3) m: its cell."""
    cells = np.floor(points / CELL_M).astype(np.int64) + SPAN // 2
    return (cells[:, 0] * SPAN + cells[:, 1]) * SPAN + cells[:, 2]


def cell_centres(keys: np.ndarray) -> np.ndarray:
    """Return the middles (n, 3) m of packed cells (n,); the inverse of :func:`pack`."""
    parts = np.column_stack((keys // (SPAN * SPAN), keys // SPAN % SPAN, keys % SPAN))
    return (parts - SPAN // 2 + 0.5) * CELL_M
