"""Colour of surfaces under uneven light: names, and which points of a heap belong to one hue."""

from __future__ import annotations

import colorsys

import numpy as np

HUES: tuple[tuple[float, str], ...] = (
    (15.0, "red"),
    (42.0, "orange"),
    (70.0, "yellow"),
    (160.0, "green"),
    (190.0, "cyan"),
    (255.0, "blue"),
    (290.0, "purple"),
    (340.0, "pink"),
    (360.0, "red"),
)
"""(upper bound in degrees, name) around the hue circle."""

MIN_SATURATION = 0.35
"""Below it (or below ``MIN_VALUE``) a surface is black, grey or white: its hue is mostly that of the light."""
MIN_VALUE = 0.12
_BINS = 36
_MIN_SEPARATION = 3  # bins of 10 degrees between two hues that are told apart


def to_hsv(rgb: np.ndarray) -> np.ndarray:
    """Convert (N, 3) rgb 0..1 to hue (degrees), saturation and value (0..1), (N, 3)."""
    r, g, b = np.ascontiguousarray(rgb.T)  # whole columns: reducing over an axis of length 3 is ten times slower
    high, low = np.maximum(np.maximum(r, g), b), np.minimum(np.minimum(r, g), b)
    span = np.where(high > low, high - low, 1.0)
    hue = np.select(
        [high == low, high == r, high == g], [0.0, (g - b) / span, 2.0 + (b - r) / span], 4.0 + (r - g) / span
    )
    saturation = (high - low) / np.where(high > 0, high, 1.0)
    return np.stack(((hue * 60.0) % 360.0, saturation, high), axis=1)


def is_chromatic(hsv: np.ndarray) -> np.ndarray:
    """Tell which of (N, 3) hsv colours have a hue worth trusting, (N,) bool."""
    return (hsv[:, 1] >= MIN_SATURATION) & (hsv[:, 2] >= MIN_VALUE)


def color_name(rgb: np.ndarray) -> str:
    """Name one rgb colour (3,), 0..1.

    >>> color_name(np.array([0.8, 0.1, 0.1])), color_name(np.array([0.5, 0.5, 0.52]))
    ('red', 'gray')
    """
    hue, saturation, value = colorsys.rgb_to_hsv(*map(float, rgb))
    if saturation < MIN_SATURATION or value < MIN_VALUE:
        return "black" if value < 0.25 else "white" if value > 0.75 else "gray"
    return next(name for bound, name in HUES if 360.0 * hue <= bound)


def hue_groups(hsv: np.ndarray, min_points: int) -> np.ndarray:
    """Group (N, 3) hsv colours by the modes of their hue; (N,) int, -1 = no hue (black, grey, white).

    Pixels on an edge blend two colours: assigning each to the nearest mode, rather than linking neighbours of
    similar hue, keeps such blends from bridging red to blue by way of purple.
    """
    chromatic = is_chromatic(hsv)
    groups = np.full(len(hsv), -1)
    if not chromatic.any():
        return groups
    bins = (hsv[chromatic, 0] * (_BINS / 360.0)).astype(int) % _BINS
    counts = np.bincount(bins, minlength=_BINS).astype(float)
    smooth = counts + 0.5 * (np.roll(counts, 1) + np.roll(counts, -1))
    modes = _modes(smooth, min_points)
    if not modes:
        return groups
    apart = np.abs(bins[:, None] - np.array(modes)[None])
    groups[chromatic] = np.minimum(apart, _BINS - apart).argmin(axis=1)
    return groups


def _modes(histogram: np.ndarray, min_points: int) -> list[int]:
    modes: list[int] = []
    for candidate in np.argsort(-histogram, kind="stable"):
        if histogram[candidate] < min_points:
            break
        apart = [min(abs(candidate - m), _BINS - abs(candidate - m)) for m in modes]
        if all(a >= _MIN_SEPARATION for a in apart):
            modes.append(int(candidate))
    return modes
