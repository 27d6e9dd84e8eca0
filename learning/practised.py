"""What practice in simulation leaves for the learner: episodes, and corrections of the motions that were found in them.

Another process practises, at any time; the learner looks, and takes each correction once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from engram.core.durable import seal, unseal, write_atomic
from engram.core.errors import DAMAGED, InvalidInputError, StoreError
from engram.core.types import Transition
from engram.learning.experience.reader import ExperienceReader
from engram.learning.motion_correction import MotionCorrection

FOUND = "found.json"


@dataclass(frozen=True)
class FoundCorrection:
    """A correction with which practice surely did better at a task than without."""

    task: str
    correction: MotionCorrection
    episodes: tuple[int, ...]
    """Numbers of the episodes that show where the motions are corrected."""


@dataclass(frozen=True)
class Findings:
    """What practice found for weights, all that the learner makes part of them at once."""

    number: int
    """From 1: they become part of the weights that have all before them, and once."""
    found: tuple[FoundCorrection, ...]
    others: tuple[int, ...] = ()
    """Numbers of the episodes of other goals, in which the policy keeps its answers."""


class Practised:
    """What lies in ``folder``; nothing, until somebody practises."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def findings(self) -> Findings | None:
        """Return what was found last. StoreError: it cannot be read."""
        path = self._folder / FOUND
        if not path.exists():
            return None
        try:
            about = unseal(path.read_bytes())
            found = tuple(map(_found_correction, about["found"]))
            return Findings(int(about["number"]), found, tuple(map(int, about["others"])))
        except (*DAMAGED, InvalidInputError) as error:
            raise StoreError(f"{path} cannot be read ({error}); remove it: it is searched for again") from error

    def tell(self, findings: Findings) -> None:
        """Leave ``findings`` for the learner, in place of what was found before."""
        write_atomic(self._folder / FOUND, seal(asdict(findings)))

    def episodes(
        self, findings: Findings
    ) -> tuple[Iterator[tuple[MotionCorrection, Sequence[Transition]]], Iterator[Sequence[Transition]]]:
        """Return what :meth:`engram.learning.learner.Learner.correct` takes: each correction with each of its episodes,
        and those of other goals; no transitions of one that is gone. StoreError: the store is damaged."""
        store = ExperienceReader(self._folder)
        shown = (
            (one.correction, [replace(step, task=one.task) for step in store.episode(number)])
            for one in findings.found
            for number in one.episodes
        )
        return shown, (store.episode(number) for number in findings.others)


def _found_correction(about: Mapping[str, Any]) -> FoundCorrection:
    correction = MotionCorrection(**{name: float(value) for name, value in about["correction"].items()})
    return FoundCorrection(str(about["task"]), correction, tuple(map(int, about["episodes"])))
