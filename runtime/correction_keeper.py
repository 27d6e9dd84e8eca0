"""The corrections of a policy's motions that suit a robot: searched for goal by goal, and kept on disk. No ROS."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engram.core.durable import write_atomic
from engram.core.errors import DAMAGED, EngramError, StoreError
from engram.learning.motion_correction import CorrectionSearch, MotionCorrection
from engram.learning.rewards.goal import kind_of

FILE = "corrections.json"
KEPT = 200
"""Kinds of goals and versions of weights of which it is kept what was searched for, those of the newest goals."""
WINDOW = 20
"""Goals whose mean outcome a search may lower by its margin at most."""
PLAIN = 5
"""Goals of a search that are driven first without a further correction: they say what it may not fall below."""
REMEMBERED = 8
"""Goals that began and have not ended; older ones ended elsewhere."""


@dataclass
class Searched:
    """What is known of the goals of one kind with one version of the weights."""

    found: MotionCorrection = field(default_factory=MotionCorrection)
    """All corrections that were found so far, one after the other."""
    searches: int = 0
    """Corrections that were found."""
    trials: dict[tuple[float, float], tuple[int, float]] = field(default_factory=dict)
    """What was tried since, relative to ``found``: scale and turn -> goals, and the mean of their outcomes."""

    recent: list[float] = field(default_factory=list)
    """Outcomes of the newest goals since, the oldest first."""
    breaches: int = 0
    """Goals after which the mean of the newest ``WINDOW`` was below the margin all the same: luck changes, too."""

    @property
    def count(self) -> int:
        """Goals since."""
        return sum(times for times, _ in self.trials.values())

    def may_try(self, margin: float) -> bool:
        """Tell whether another correction may be tried: even if it reaches nothing, the mean outcome of the newest
        ``WINDOW`` goals stays within ``margin`` of the mean of those without a further one (as StepMix and conservative
        bandits mix exploration with what is known: Wu et al. 2016, arXiv:1602.04282)."""
        times, plain = self.trials.get((1.0, 0.0), (0, 0.0))
        newest = self.recent[1 - WINDOW :]
        return times >= PLAIN and sum(newest) >= (plain - margin) * (len(newest) + 1)

    def add(self, tried: MotionCorrection, outcome: float, margin: float) -> None:
        """Take note of a goal."""
        times, mean = self.trials.get((tried.scale, tried.yaw_rad), (0, 0.0))
        self.trials[tried.scale, tried.yaw_rad] = times + 1, mean + (outcome - mean) / (times + 1)
        self.recent = [*self.recent[1 - WINDOW :], outcome]
        times, plain = self.trials.get((1.0, 0.0), (0, 0.0))
        self.breaches += len(self.recent) == WINDOW and sum(self.recent) < (plain - margin) * WINDOW


class CorrectionKeeper:
    """Says which correction drives a goal, and learns from how it ended; callable from any thread.

    Goals are told apart by the relation that their words name (in, on, pressed, ...) and by the version of the weights:
    what suits one need not suit another. A search takes ``goals`` goals. The best correction, if it is surely better
    than none, then drives, and what is left is searched for from there; else the search goes on. What was tried at
    another kind of goal, with the same weights and corrections so far, tells of this one, too. A search keeps to a
    margin: where it has harmed too much lately, a goal is driven without a further correction.

    Args:
        folder: where it is kept; None: in RAM.
        mode: none: none drives; found: those that were found; search: one more is searched for.
        goals: of a search.
        margin: how far a search may lower the mean outcome of the newest ``WINDOW`` goals; 1: however far.
        seed: of what is tried.
        on_problem: is told what cannot be read or written; nothing is corrected then.
    """

    def __init__(
        self,
        folder: Path | None,
        mode: str,
        goals: int,
        margin: float = 1.0,
        seed: int = 0,
        on_problem: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.mode, self._goals, self._margin = mode, goals, margin
        self._seed, self._on_problem = seed, on_problem
        self._path = folder / FILE if folder is not None and mode != "none" else None
        self._known: dict[str, Searched] = {}
        self._begun: dict[int, tuple[str, MotionCorrection]] = {}  # episode -> key, and what is tried
        self._said = "nothing"
        self._lock = threading.Lock()
        try:
            self._known = {} if self._path is None else read(self._path)
        except StoreError as error:
            self.mode, self._said = "none", f"nothing: {error}"
            on_problem(self._said)

    @property
    def said(self) -> str:
        """What drives, in a few words."""
        return self._said

    def begin(self, episode: int, words: str, version: str) -> MotionCorrection:
        """Return the correction with which the policy is to carry out ``words`` in ``episode``.

        The same one comes out for the same episode and outcomes before it, also in another process.
        """
        if self.mode == "none":
            return MotionCorrection()
        with self._lock:
            key = f"{version}: {kind_of(words)}"
            known = self._known.get(key, Searched())
            searches = self.mode == "search" and known.may_try(self._margin)
            tried = self._search(key, known).next() if searches else MotionCorrection()
            self._begun = {**dict(list(self._begun.items())[1 - REMEMBERED :]), episode: (key, tried)}
            self._said = self._words(known, tried)
            return known.found.then(tried)

    def tell(self, episode: int, outcome: float) -> None:
        """Take note of how the goal of ``episode`` ended: from 0, nothing was reached, to 1, all of it."""
        with self._lock:
            key, tried = self._begun.pop(episode, ("", MotionCorrection()))
            if self.mode != "search" or not key:
                return
            known = self._known.pop(key, Searched())
            known.add(tried, outcome, self._margin)
            if known.count % self._goals == 0:
                best = self._search(key, known).best()
                if best != MotionCorrection():
                    known = Searched(known.found.then(best), known.searches + 1, breaches=known.breaches)
            self._known = {**dict(list(self._known.items())[1 - KEPT :]), key: known}
            self._write()

    def _search(self, key: str, known: Searched) -> CorrectionSearch:
        """Return the search for ``key`` as it stands, with what was tried at other kinds of goals."""
        search = CorrectionSearch(seed=self._seed * 1_000_003 + known.searches)
        version, _, _ = key.rpartition(": ")
        others = {one: other for one, other in self._known.items() if one.rpartition(": ")[0] == version}
        alike = {one: other for one, other in others.items() if other.found == known.found}
        for task, one in {**alike, key: known}.items():
            for (scale, yaw_rad), (times, mean) in one.trials.items():
                search.tell(MotionCorrection(scale, yaw_rad), mean, times, task="" if task == key else task)
        return search

    def _words(self, known: Searched, tried: MotionCorrection) -> str:
        drives = known.found.then(tried)
        words = f"scale {drives.scale:.2f}, turned by {math.degrees(drives.yaw_rad):.0f} degrees"
        told = f"{known.count} goals tried" + (f", {known.breaches} below the margin" if known.breaches else "")
        return f"{words} ({told})" if self.mode == "search" else words

    def _write(self) -> None:
        if self._path is None:
            return
        about = {
            key: {
                "found": [one.found.scale, one.found.yaw_rad],
                "searches": one.searches,
                "trials": [[*tried, *told] for tried, told in one.trials.items()],
                "recent": one.recent,
                "breaches": one.breaches,
            }
            for key, one in self._known.items()
        }
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path, json.dumps(about, indent=1).encode())
        except (OSError, EngramError) as error:
            self._on_problem(f"{self._path}: cannot be written, what was tried is lost with this process: {error}")


def read(path: Path) -> dict[str, Searched]:
    """Return what is kept in ``path``; nothing where there is no file. StoreError: it is damaged, and left as it is."""
    if not path.exists():
        return {}
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        known = {}
        for key, one in found.items():
            trials = {}
            for scale, yaw, times, mean in one["trials"]:
                CorrectionSearch().tell(_checked(scale, yaw), float(mean), int(times))
                trials[float(scale), float(yaw)] = int(times), float(mean)
            recent = [float(outcome) for outcome in one["recent"]][-WINDOW:]
            counts = int(one["searches"]), int(one["breaches"])
            known[key] = Searched(_checked(*one["found"]), counts[0], trials, recent, counts[1])
            if min(counts) < 0 or not all(0.0 <= outcome <= 1.0 for outcome in recent):
                raise ValueError(f"searches and breaches {counts}, recent {recent}")
    except (*DAMAGED, EngramError) as error:
        raise StoreError(f"{path} cannot be read ({error}); mend or remove it") from error
    return known


def _checked(scale: float, yaw_rad: float) -> MotionCorrection:
    if not (0.0 < scale < math.inf and math.isfinite(yaw_rad)):
        raise ValueError(f"scale {scale}, turn {yaw_rad}")
    return MotionCorrection(scale, yaw_rad)
