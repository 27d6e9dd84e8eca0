"""What an algorithm is shown where a correction of the policy's motions becomes part of its weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engram.core.motion_correction import MotionCorrection
from engram.learning.replay.buffer import Batch, Episode, ReplayBuffer, Windows, whole

CORRECTED, SHOWN = 3072, 128
"""Control steps in which a correction is learnt, and those of a batch."""


class ShownSamples(Sequence[tuple[Batch, MotionCorrection]]):
    """Samples of what is corrected, drawn anew, and alike, each time one is asked for: all together are large."""

    def __init__(self, parts: Sequence[tuple[MotionCorrection, ReplayBuffer]], seed: int) -> None:
        self._parts, self._seed, self._each = parts, seed, CORRECTED // SHOWN

    def __len__(self) -> int:
        return len(self._parts) * self._each

    def __getitem__(self, index: Any) -> Any:
        part, number = divmod(range(len(self))[index], self._each)
        correction, buffer = self._parts[part]
        return buffer.sample(SHOWN, (self._seed, number)), correction


class ShownEpisodes(Sequence[tuple[Windows, MotionCorrection]]):
    """Whole episodes of what is corrected, of each correction so many that they have about ``CORRECTED`` steps."""

    def __init__(self, parts: Sequence[tuple[MotionCorrection, ReplayBuffer]], seed: int) -> None:
        self._episodes: list[tuple[Episode, MotionCorrection]] = []
        for correction, buffer in parts:
            left, known = CORRECTED, buffer.episodes
            for at in np.random.default_rng(seed).permutation(len(known)).tolist():
                if left > 0:
                    self._episodes.append((known[at], correction))
                    left -= len(known[at])

    def __len__(self) -> int:
        return len(self._episodes)

    def __getitem__(self, index: Any) -> Any:
        episode, correction = self._episodes[index]
        return whole(episode), correction
