"""Least squares that some of the residuals may spoil, with intervals that hold for residuals that go together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import t as student

Residuals = Callable[[np.ndarray], Sequence[np.ndarray]]
"""Values of the parameters (p,) -> residuals, an array for each group of measurements that go together."""


@dataclass(frozen=True)
class Fit:
    """What was found: values of p parameters, and half of their 95 % intervals."""

    values: np.ndarray
    half: np.ndarray
    cost: float
    """Sum of the robust losses."""
    before: float
    """Root of the mean squared residual at the start."""
    after: float
    """The same at the values that were found."""


def robust_fit(
    residuals: Residuals,
    start: Sequence[float] | np.ndarray,
    steps: Sequence[float],
    scale: float,
    bounds: tuple[Sequence[float], Sequence[float]] | None = None,
    evaluations: int = 12,
) -> Fit:
    """Return the parameters whose residuals are smallest; residuals far above ``scale`` count little (soft L1).

    The intervals come from the sandwich estimator with groups as clusters (Liang & Zeger 1986): what is alike in all
    residuals of a group counts once.

    Args:
        residuals: of given parameters.
        start: where the search begins (p,).
        steps: a change of each parameter that matters (p,); derivatives are taken over half of it to both sides.
        scale: a usual residual.
        bounds: least and largest values, (p,) each; None: none.
        evaluations: most evaluations of the residuals beside those for derivatives.
    """
    unit = np.array(steps, float)
    seen: dict[bytes, Sequence[np.ndarray]] = {}  # residuals wherever the search was
    slopes: dict[bytes, np.ndarray] = {}  # derivatives where it is now

    def flat(z: np.ndarray) -> np.ndarray:
        return np.concatenate([np.ravel(group) for group in residuals(z * unit)])

    def grouped(z: np.ndarray) -> Sequence[np.ndarray]:
        if z.tobytes() not in seen:
            seen[z.tobytes()] = residuals(z * unit)
        return seen[z.tobytes()]

    def searched(z: np.ndarray) -> np.ndarray:
        return np.concatenate([np.ravel(group) for group in grouped(z)])

    def jacobian(z: np.ndarray) -> np.ndarray:
        if z.tobytes() not in slopes:
            slopes.clear()
            slopes[z.tobytes()] = np.stack([flat(z + 0.5 * e) - flat(z - 0.5 * e) for e in np.eye(len(z))], axis=1)
        return slopes[z.tobytes()]

    z = np.array(start, float) / unit
    low, high = (np.array(each, float) / unit for each in bounds) if bounds else (-np.inf, np.inf)
    first = searched(z)
    found = least_squares(
        *(searched, np.clip(z, np.add(low, 1e-6), np.subtract(high, 1e-6)), jacobian),
        bounds=(low, high),
        loss="soft_l1",
        f_scale=scale,
        max_nfev=evaluations,
        xtol=1e-3,
        ftol=1e-5,
    )
    groups = grouped(found.x)
    half = _half(jacobian(found.x), groups, scale) * unit
    return Fit(found.x * unit, half, float(found.cost), rms([first]), rms(groups))


def _half(slopes: np.ndarray, groups: Sequence[np.ndarray], scale: float) -> np.ndarray:
    """Return half of the 95 % intervals (p,); infinite with too few groups, or where nothing depends on a parameter."""
    parameters = slopes.shape[1]
    if len(groups) <= parameters:
        return np.full(parameters, np.inf)
    left = np.concatenate([np.ravel(group) for group in groups])
    weight = 1.0 / np.sqrt(1.0 + (left / scale) ** 2)  # of the soft L1 loss: its slope is weight * left
    bread = slopes.T @ (weight[:, None] ** 3 * slopes)
    if np.linalg.matrix_rank(bread) < parameters:
        return np.full(parameters, np.inf)
    ends = np.cumsum([np.size(group) for group in groups])[:-1]
    scores = [part.T @ pull for part, pull in zip(np.split(slopes, ends), np.split(weight * left, ends), strict=True)]
    meat = sum(np.outer(score, score) for score in scores) * len(groups) / (len(groups) - 1)
    inverse = np.linalg.inv(bread)
    spread = np.sqrt(np.diag(inverse @ meat @ inverse))
    return np.asarray(spread * student.ppf(0.975, len(groups) - parameters))


def rms(groups: Sequence[np.ndarray]) -> float:
    """Return the root of the mean squared residual."""
    return float(np.sqrt(np.mean(np.concatenate([np.ravel(group) for group in groups]) ** 2)))
