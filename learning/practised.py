"""What practice in simulation leaves for the learner: episodes, and corrections of the motions that were found in them.

Another process practises, at any time; the learner looks, and takes each correction once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from engram.core.errors import StoreError
from engram.core.types import Transition
from engram.learning.experience.database import write_atomic
from engram.learning.experience.reader import ExperienceReader
from engram.learning.motion_correction import MotionCorrection

FOUND = "found.json"


@dataclass(frozen=True)
class FoundCorrection:
    """A correction with which practice surely did better than without."""

    number: int
    """Of the learner's corrections, from 1: it is made part of the weights that have all before it, and once."""
    task: str
    correction: MotionCorrection
    episodes: tuple[int, ...]
    """Numbers of the episodes that show where the motions are corrected."""
    others: tuple[int, ...] = ()
    """Of those of other goals, in which the policy keeps its answers."""


class Practised:
    """What lies in ``folder``; nothing, until somebody practises."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def found(self) -> FoundCorrection | None:
        """Return what was found last. StoreError: it cannot be read."""
        path = self._folder / FOUND
        if not path.exists():
            return None
        try:
            about = json.loads(path.read_text())
            scale, yaw_rad = (float(value) for value in about["correction"])
            if not (0.0 < scale < math.inf and math.isfinite(yaw_rad)):
                raise ValueError(f"scale {scale}, turn {yaw_rad}")
            shown = [tuple(int(number) for number in about[name]) for name in ("episodes", "others")]
            return FoundCorrection(int(about["number"]), str(about["task"]), MotionCorrection(scale, yaw_rad), *shown)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{path} cannot be read ({error}); remove it: it is searched for again") from error

    def tell(self, found: FoundCorrection) -> None:
        """Leave ``found`` for the learner, in place of what was found before."""
        correction = [found.correction.scale, found.correction.yaw_rad]
        about = {"number": found.number, "task": found.task, "correction": correction}
        about |= {"episodes": found.episodes, "others": found.others}
        write_atomic(self._folder / FOUND, json.dumps(about).encode())

    def episodes(self, numbers: Sequence[int]) -> Iterator[Sequence[Transition]]:
        """Yield the transitions of each episode; none of one that is gone. StoreError: the store is damaged."""
        store = ExperienceReader(self._folder)
        return (store.episode(number) for number in numbers)
