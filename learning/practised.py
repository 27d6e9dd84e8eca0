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
from engram.core.motion_correction import MotionCorrection
from engram.core.types import Transition
from engram.learning.experience.reader import ExperienceReader, stored_id

FOUND, REFUSED = "found.json", "refused.json"
"""Files of what was found last, and of what was found and may not drive."""
KEPT = 50
"""Refusals that are kept, the newest."""


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
    store: str = ""
    """Id of the store whose episodes are numbered; empty: not known."""

    @property
    def about(self) -> tuple[object, ...]:
        """What it corrects and how, whatever the episodes that show it."""
        return self.number, *((one.task, one.correction) for one in self.found)

    def __str__(self) -> str:
        told = [f"{one.task} (motions {one.correction})" for one in self.found]
        return f"what was found for {', '.join(told)}"


class Practised:
    """What lies in ``folder``; nothing, until somebody practises."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def findings(self) -> Findings | None:
        """Return what was found last; None also where its episodes are gone. StoreError: it cannot be read."""
        path = self._folder / FOUND
        if not path.exists():
            return None
        try:
            found = _findings(unseal(path.read_bytes()))
        except (*DAMAGED, InvalidInputError) as error:
            raise StoreError(f"{path} cannot be read ({error}); remove it: it is searched for again") from error
        return found if found.store in ("", stored_id(self._folder)) else None

    def tell(self, findings: Findings) -> None:
        """Leave ``findings`` for the learner, in place of what was found before."""
        write_atomic(self._folder / FOUND, seal(asdict(findings)))

    def refuse(self, findings: Findings, why: str) -> None:
        """Note that weights with ``findings`` may not drive; ``why`` in words. StoreError: see :meth:`refusal`."""
        if not self.refusal(findings):
            write_atomic(self._folder / REFUSED, seal([*self._refusals(), asdict(findings) | {"why": why}][-KEPT:]))

    def refusal(self, findings: Findings) -> str:
        """Return why weights with ``findings`` may not drive; empty: nobody refused them.

        Raises:
            StoreError: what was refused cannot be read.
        """
        path = self._folder / REFUSED
        try:
            return next((str(one["why"]) for one in self._refusals() if _findings(one).about == findings.about), "")
        except (*DAMAGED, InvalidInputError) as error:
            raise StoreError(f"{path} cannot be read ({error}); remove it: the gate says it again") from error

    def _refusals(self) -> list[dict[str, Any]]:
        path = self._folder / REFUSED
        return list(unseal(path.read_bytes())) if path.exists() else []

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


def _findings(about: Mapping[str, Any]) -> Findings:
    found = tuple(map(_found_correction, about["found"]))
    return Findings(int(about["number"]), found, tuple(map(int, about["others"])), str(about.get("store", "")))


def _found_correction(about: Mapping[str, Any]) -> FoundCorrection:
    correction = MotionCorrection(**{name: float(value) for name, value in about["correction"].items()})
    return FoundCorrection(str(about["task"]), correction, tuple(map(int, about["episodes"])))
