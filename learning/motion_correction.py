"""The search for the correction of a policy's motions with which it succeeds most.

A robot that differs from the one that a policy was trained on often differs in a way that few numbers mend: its axes
stand turned, a motion leads farther than it should, commands come late, so that slower motions are needed, or a camera
stands elsewhere, so that the policy comes to rest beside its goal: a small motion to one side, always added, shifts
where it does. Noise on single motions hardly tells, as an episode's end answers for all of them. A correction that
holds for a whole episode does: its success is its own. The search is Bayesian optimisation of few numbers by trial on
the robot (Cully et al. 2015, arXiv:1407.3501), which tries what a draw from the posterior deems best (Thompson
sampling).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import norm

from engram.core.arrays import positive_int
from engram.core.errors import InvalidInputError
from engram.core.motion_correction import BOUNDS, REACH_OF_SCALE, REACH_OF_SHIFT, REACH_OF_YAW_RAD, MotionCorrection

_JITTER = 1e-6
"""Variance that is added to each success that is drawn, so that their covariance can be factored."""
NUMBERS = len(BOUNDS)


def outcome_of(success: bool, progress: float) -> float:
    """Return how near an episode came to its goal, 0..1: half for success, half for ``progress`` (NaN: unknown)."""
    progress = 1.0 if success else min(1.0, max(0.0, progress)) if np.isfinite(progress) else 0.0
    return 0.5 * success + 0.5 * progress


@dataclass(frozen=True)
class CorrectionSearchConfig:
    """What is searched, and what is believed of success before anything was tried.

    A trial changes one of the four numbers: who changes several at once mostly spoils the one by the other, and a
    second search can add what is left. The belief is a Gaussian process over the corrections, in units of the reach:
    smooth, and best without one.
    """

    reach_of_scale: float = REACH_OF_SCALE
    """Motions are scaled by 1 / this to this."""
    reach_of_yaw_rad: float = REACH_OF_YAW_RAD
    """Motions are turned by this at most, either way [rad]."""
    reach_of_shift: float = REACH_OF_SHIFT
    """Motions are shifted by this at most, either way, along each axis."""
    steps: int = 13
    """Values of each number; odd, so that no correction is among them."""
    smooth: float = 0.5
    """How far apart corrections still tell of each other."""
    believed: float = 0.4
    """Success without a correction, before anything was tried."""
    believed_within: float = 0.8
    """How fast the belief falls off with the size of a correction."""
    spread: float = 0.3
    """Standard deviation of the belief."""
    alike: float = 0.6
    """Correlation of the success at one task with that at another on the same robot."""
    noise: float = 0.4
    """Standard deviation of the outcome of one episode."""
    surety: float = 0.9
    """With this probability a correction has to be better than none to be taken."""

    def __post_init__(self) -> None:
        if self.steps < 3 or self.steps % 2 == 0:
            raise InvalidInputError(f"CorrectionSearchConfig.steps: {self.steps}, expected an odd number from 3 on")
        for name, least, bound in (("scale", 1.0, "scale"), ("yaw_rad", 0.0, "yaw_rad"), ("shift", 0.0, "shift_x")):
            reach, most = getattr(self, f"reach_of_{name}"), BOUNDS[bound][1]
            if not least < reach <= most:
                raise InvalidInputError(
                    f"CorrectionSearchConfig.reach_of_{name}: {reach}, expected above {least:g}, at most {most:.3g}"
                )


class CorrectionSearch:
    """Says which correction to try next, and which one is best by what was tried.

    The same seed and the same outcomes give the same trials.
    """

    def __init__(self, config: CorrectionSearchConfig | None = None, seed: int = 0) -> None:
        self.config, self._seed = config or CorrectionSearchConfig(), seed
        sizes = np.linspace(-1.0, 1.0, self.config.steps)
        each = np.einsum("s,ij->isj", sizes[sizes != 0.0], np.eye(NUMBERS)).reshape(-1, NUMBERS)
        self._places = np.concatenate((np.zeros((1, NUMBERS)), each))  # none, then one number after the other
        self._counts: dict[str, np.ndarray] = {"": np.zeros(len(self._places))}  # by task: trials of each place
        self._sums: dict[str, np.ndarray] = {"": np.zeros(len(self._places))}  # of their outcomes

    @property
    def trials(self) -> int:
        """How many corrections were tried, at the task that is searched for."""
        return int(self._counts[""].sum())

    def next(self) -> MotionCorrection:
        """Return the correction to try in the next episode."""
        mean, covariance = self._posterior()
        rng = np.random.default_rng((self._seed, self.trials))
        # by Cholesky: eigenvectors, and with them the draws of a seed, are not the same on every processor
        factor = np.linalg.cholesky(covariance + _JITTER * np.eye(len(mean)))
        return self.correction(int(np.argmax(mean + factor @ rng.standard_normal(len(mean)))))

    def tell(self, tried: MotionCorrection, outcome: float, times: int = 1, task: str = "") -> None:
        """Take note of how ``times`` episodes with ``tried`` came out on average: 0 nothing was reached, 1 all of it.

        With a name in ``task`` they were episodes of that other task on the same robot, which tell of this one, too.

        Raises:
            InvalidInputError: ``outcome`` is none of these, or ``times`` is below 1.
        """
        positive_int("CorrectionSearch.tell: times", times)
        if not 0.0 <= outcome <= 1.0:
            raise InvalidInputError(f"CorrectionSearch.tell: outcome {outcome}, expected 0..1")
        config = self.config
        size = np.array(
            [
                np.log(tried.scale) / np.log(config.reach_of_scale),
                tried.yaw_rad / config.reach_of_yaw_rad,
                tried.shift_x / config.reach_of_shift,
                tried.shift_y / config.reach_of_shift,
            ]
        )
        place = int(np.argmin(((self._places - size) ** 2).sum(axis=1)))
        self._counts.setdefault(task, np.zeros(len(self._places)))[place] += times
        self._sums.setdefault(task, np.zeros(len(self._places)))[place] += times * outcome

    def best(self) -> MotionCorrection:
        """Return the correction that is expected to succeed most; none where it is not surely better than none."""
        return best_for_all((self,))

    def gains(self) -> tuple[np.ndarray, np.ndarray]:
        """Return by how much each correction is expected to succeed more than none (n,), and the standard deviation."""
        mean, covariance = self._posterior()
        variance = np.diag(covariance) + covariance[0, 0] - 2.0 * covariance[:, 0]
        return mean - mean[0], np.sqrt(np.maximum(variance, 1e-12))

    def correction(self, index: int) -> MotionCorrection:
        """Return the correction with this place among :meth:`gains`."""
        scale, yaw, *shift = self._places[index].tolist()
        config = self.config
        x, y = (config.reach_of_shift * one for one in shift)
        return MotionCorrection(float(config.reach_of_scale**scale), config.reach_of_yaw_rad * yaw, x, y)

    def _posterior(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean (n,) and covariance (n, n) of the success with each correction."""
        config, places = self.config, self._places
        apart = ((places[:, None] - places[None]) ** 2).sum(axis=-1)
        before = config.believed * np.exp(-0.5 * (places**2).sum(axis=1) / config.believed_within**2)
        covariance = config.spread**2 * np.exp(-0.5 * apart / config.smooth**2)
        tasks, tried = np.nonzero(np.stack(list(self._counts.values())))  # 0: the one that is searched for
        if not len(tried):
            return before, covariance
        counts, sums = (np.stack(list(each.values()))[tasks, tried] for each in (self._counts, self._sums))
        known = covariance[:, tried] * np.where(tasks == 0, 1.0, config.alike)
        among = covariance[np.ix_(tried, tried)] * np.where(tasks[:, None] == tasks, 1.0, config.alike)
        factor = cho_factor(among + np.diag(config.noise**2 / counts))  # of the mean of so many
        mean = before + known @ cho_solve(factor, sums / counts - before[tried])
        return mean, covariance - known @ cho_solve(factor, known.T)


def best_for_all(searches: Sequence[CorrectionSearch]) -> MotionCorrection:
    """Return the one correction that is expected to succeed most at the tasks of all ``searches`` together.

    It is none where that is not surely better than none. What the searches know of each other's trials makes their
    errors alike, so these add up.

    Args:
        searches: one for each task, all of the same configuration.
    """
    gains, errors = (np.sum(each, axis=0) for each in zip(*(one.gains() for one in searches), strict=True))
    found = int(np.argmax(gains))  # 0: none
    surety = norm.cdf(gains[found] / errors[found])
    return searches[0].correction(found if surety >= searches[0].config.surety else 0)
