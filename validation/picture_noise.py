"""How noisy is a camera? Two pictures in a row of a camera that stands still differ by noise where nothing moves."""

from __future__ import annotations

import numpy as np

CLIPPED = 2.5
"""Differences larger than so many standard deviations are motion."""
KEPT_VARIANCE = 0.9113
"""Variance of those values of a normal distribution that are within CLIPPED standard deviations, of that of all."""
LEAST = 1.0
"""Standard deviation of differences with which the search begins, at least [grey levels of 255]."""
MARGIN = 2.0
"""A colour so many standard deviations from black or white, or nearer, is not looked at: there noise is cut off."""
FEWEST = 0.02
"""Share of the colours that must be left; otherwise all are looked at."""


def noise_between(before: np.ndarray, now: np.ndarray) -> float:
    """Return the standard deviation (0..1) of the noise of each of two pictures (H, W, 3) uint8, taken in a row."""
    one, other = before.ravel().astype(np.float32), now.ravel().astype(np.float32)
    apart, mean = other - one, (one + other) / 2.0
    spread = _spread(apart)
    for _ in range(2):
        free = np.abs(mean - 127.5) < 127.5 - MARGIN * spread / np.sqrt(2.0)
        if free.mean() < FEWEST:
            break
        spread = _spread(apart[free])
    return float(np.sqrt(max(0.0, spread**2 / 2.0 - 1.0 / 12.0)) / 255.0)  # without what rounding to uint8 adds


def _spread(apart: np.ndarray) -> float:
    """Return the standard deviation of ``apart`` (n,) without those that are far out, of which there are fewer."""
    spread = max(LEAST, float(np.median(np.abs(apart))) * 1.4826)
    for _ in range(20):
        kept = apart[np.abs(apart) < CLIPPED * spread]
        spread, last = float(np.sqrt(np.mean(kept**2) / KEPT_VARIANCE)) if len(kept) else 0.0, spread
        if abs(spread - last) < 1e-3 * last:
            break
    return spread
