"""Noise on a policy's chunks, so that practice finds what the policy alone would not try."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from engram.core.arrays import positive_int
from engram.core.errors import InvalidInputError
from engram.core.motion_correction import MotionCorrection
from engram.core.types import CORRECTION, EXPLORED, ActionChunk, ActionSource

_TRANSLATION, _MOTION = 3, 6
"""The leading components of an ``ee_delta`` action: translation (3) and rotation (3)."""


@dataclass(frozen=True)
class ExplorationConfig:
    """How large the noise is, in units of an action (1 = the most a control step can do)."""

    size: float = 0.1
    """Standard deviation, as a share of the noise's reach; 0: none."""
    reach: float = 0.05
    """The noise's reach for an action that stands still."""
    reach_of_motion: float = 0.5
    """What is added to the reach, as a share of the action's own length."""

    hold_steps: int = 4
    """Control steps for which a draw is kept, also for a policy that replans at every step. 0: the whole episode; it
    then turns, stretches and shifts every translation of the tool alike."""

    def __post_init__(self) -> None:
        if self.hold_steps:
            positive_int("ExplorationConfig.hold_steps", self.hold_steps)
        for name in ("size", "reach", "reach_of_motion"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise InvalidInputError(f"ExplorationConfig.{name}: {value}, expected 0..1")


class Exploration:
    """Adds one draw to all actions of some control steps: a direction that is held shows where it leads, white noise
    cancels out.

    It is relative to the motion: noise of a fixed size keeps a policy from coming to rest where it must, at a grasp.
    Translation and rotation are each scaled by their own length; the gripper, and chunks of other spaces than
    ``ee_delta``, stay as they are. A draw for a whole episode is a small linear map of the translation, as evolution
    strategies perturb a policy's parameters (Salimans et al. 2017, arXiv:1703.03864): the episode's end then tells of
    it alone.
    """

    def __init__(self, config: ExplorationConfig | None = None, seed: int = 0) -> None:
        self.config, self._seed = config or ExplorationConfig(), seed
        self.correction = MotionCorrection()
        """Corrects every motion before it gets its noise; one is tried for a whole episode."""
        self.begin(0)

    def begin(self, episode: int) -> None:
        """Begin ``episode``; the same number, seed and chunks give the same noise."""
        self._rng = np.random.default_rng((self._seed, episode))
        self._until_ns = self._drawn_ns = 0  # the draw holds from, and until
        self._draw: np.ndarray = np.zeros(_MOTION)
        self._map: np.ndarray = np.zeros((1 + _TRANSLATION, _TRANSLATION))
        if not self.config.hold_steps:
            self._map = self.config.size * self._rng.standard_normal(self._map.shape)

    def mark(self, source: ActionSource) -> ActionSource:
        """Return ``source`` marked as corrected where its motions are, else as explored where they get noise.

        What is done with a correction is not to be imitated. What is done with noise has something to be learnt.
        """
        mark = CORRECTION if self.correction != MotionCorrection() else EXPLORED if self.config.size else ""
        return replace(source, ablation=source.ablation or mark) if mark else source

    def apply(self, chunk: ActionChunk) -> ActionChunk:
        """Return ``chunk`` corrected and with noise, within what actions may be."""
        chunk = self.correction.apply(chunk)
        if chunk.space != "ee_delta" or not self.config.size:
            return chunk
        actions = chunk.actions.copy()
        if self.config.hold_steps:
            self._add_draw(actions, chunk)
        else:
            reach = self._reach(actions[:, :_TRANSLATION])
            way = actions[:, :_TRANSLATION] / reach
            actions[:, :_TRANSLATION] += reach * (self._map[0] + way @ self._map[1:])
        actions[:, :_MOTION] = actions[:, :_MOTION].clip(-1.0, 1.0)
        return replace(chunk, actions=actions)

    def _add_draw(self, actions: np.ndarray, chunk: ActionChunk) -> None:
        if not self._drawn_ns <= chunk.stamp_ns < self._until_ns:
            self._draw = self.config.size * self._rng.standard_normal(_MOTION)
            hold_ns = round((self.config.hold_steps - 0.5) * chunk.dt_s * 1e9)
            self._drawn_ns, self._until_ns = chunk.stamp_ns, chunk.stamp_ns + hold_ns
        for part in (slice(0, _TRANSLATION), slice(_TRANSLATION, _MOTION)):
            actions[:, part] += self._draw[part] * self._reach(actions[:, part])

    def _reach(self, motion: np.ndarray) -> np.ndarray:
        """Return what a draw of one adds (n, 1) to ``motion`` (n, 3)."""
        return self.config.reach + self.config.reach_of_motion * np.linalg.norm(motion, axis=1, keepdims=True)
