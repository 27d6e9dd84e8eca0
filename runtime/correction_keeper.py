"""The corrections of a policy's motions that suit a robot: searched for goal by goal, and kept on disk. No ROS."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from engram.core.durable import seal, unseal, write_atomic
from engram.core.errors import DAMAGED, EngramError, StoreError
from engram.core.motion_correction import MotionCorrection
from engram.learning.experience.database import set_aside
from engram.learning.motion_correction import CorrectionSearch
from engram.learning.rewards.goal import kind_of

FILE = "corrections.json"
KEPT = 200
"""Kinds of goals and versions of weights of which it is kept what was searched for, those of the newest goals."""
WINDOW = 20
"""Goals whose mean outcome a search may lower by its margin at most."""
PLAIN = 5
"""Goals of a search that are driven first without a trial: they say what it may not fall below."""
PAST = 3
"""Searches that found something and whose trials are kept, for other kinds of goals."""
REMEMBERED = 8
"""Goals that began and have not ended; older ones ended elsewhere."""


Trials = dict[MotionCorrection, tuple[int, float]]
"""What was tried, beside what had been found before: goals, and the mean of their outcomes."""


@dataclass
class Searched:
    """What is known of the goals of one kind with one version of the weights."""

    found: MotionCorrection = field(default_factory=MotionCorrection)
    """All corrections that were found so far, one after the other."""
    trials: Trials = field(default_factory=dict)
    """What was tried since."""
    past: list[tuple[MotionCorrection, Trials]] = field(default_factory=list)
    """The searches that found one: what had been found before each, and what was tried in it."""
    recent: list[float] = field(default_factory=list)
    """Outcomes of the goals since, the newest ``WINDOW``, the oldest first."""
    plain: list[float] = field(default_factory=list)
    """The same of the goals that were driven without a trial: with ``found``, and nothing beside."""
    breaches: int = 0
    """Goals after which the mean of ``recent`` was below the margin all the same: luck changes, too."""

    @property
    def count(self) -> int:
        """Goals since."""
        return sum(times for times, _ in self.trials.values())

    def may_try(self, margin: float) -> bool:
        """Tell whether another correction may be tried: even if it reaches nothing, the mean outcome of the newest
        ``WINDOW`` goals stays within ``margin`` of that of the newest without a trial (as conservative bandits mix what
        is tried with what is known: Wu et al. 2016, arXiv:1602.04282)."""
        newest = self.recent[1 - WINDOW :]
        return len(self.plain) >= PLAIN and sum(newest) >= (fmean(self.plain) - margin) * (len(newest) + 1)

    def add(self, tried: MotionCorrection, outcome: float, margin: float) -> None:
        """Take note of a goal."""
        times, mean = self.trials.get(tried, (0, 0.0))
        self.trials[tried] = times + 1, mean + (outcome - mean) / (times + 1)
        self.recent = [*self.recent, outcome][-WINDOW:]
        if tried == MotionCorrection():
            self.plain = [*self.plain, outcome][-WINDOW:]
        if len(self.recent) == WINDOW and len(self.plain) >= PLAIN:
            self.breaches += fmean(self.recent) < fmean(self.plain) - margin

    def finds(self, best: MotionCorrection) -> Searched:
        """Return what is known once the search has found ``best``, which drives from now on."""
        past = [*self.past, (self.found, self.trials)][-PAST:]
        return Searched(self.found.then(best), past=past, breaches=self.breaches)

    def tried_beside(self, found: MotionCorrection) -> Trials:
        """Return what was tried while ``found`` was what had been found."""
        return self.trials if found == self.found else next((t for before, t in self.past if before == found), {})


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
        on_problem: is told what cannot be read or written. A file that cannot be read is set aside: nothing that was
            found drives then, and a search begins anew.
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
        self._read()

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
                    known = known.finds(best)
            self._known = {**dict(list(self._known.items())[1 - KEPT :]), key: known}
            self._write()

    def _read(self) -> None:
        """Take up what is kept; what cannot be read is set aside, and not written over."""
        if self._path is None:
            return
        try:
            self._known = read(self._path)
        except StoreError as error:
            try:
                aside = f"; it lies in {set_aside(self._path.parent, [FILE])} now"
            except OSError as stays:
                self.mode, aside = "none", f"; it cannot be moved aside ({stays}), so nothing is searched for"
            self._said = f"nothing: {error}{aside}"
            self._on_problem(self._said)

    def _search(self, key: str, known: Searched) -> CorrectionSearch:
        """Return the search for ``key`` as it stands, with what was tried at other kinds of goals."""
        search = CorrectionSearch(seed=self._seed * 1_000_003 + len(known.past))
        version, _, _ = key.rpartition(": ")
        others = {one: other for one, other in self._known.items() if one.rpartition(": ")[0] == version and one != key}
        for task, trials in ("", known.trials), *((one, o.tried_beside(known.found)) for one, o in others.items()):
            for tried, (times, mean) in trials.items():
                search.tell(tried, mean, times, task=task)
        return search

    def _words(self, known: Searched, tried: MotionCorrection) -> str:
        drives = known.found.then(tried)
        words = f"motions {drives}"
        told = f"{known.count} goals tried" + (f", {known.breaches} below the margin" if known.breaches else "")
        return f"{words} ({told})" if self.mode == "search" else words

    def _write(self) -> None:
        if self._path is None:
            return
        about = {key: _plain(one) for key, one in self._known.items()}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path, seal(about))
        except (OSError, EngramError) as error:
            self._on_problem(f"{self._path}: cannot be written, what was tried is lost with this process: {error}")


def read(path: Path) -> dict[str, Searched]:
    """Return what is kept in ``path``; nothing where there is no file. StoreError: it is damaged."""
    try:
        if not path.exists():
            return {}
        found: dict[str, Any] = unseal(path.read_bytes())
        known = {}
        for key, one in found.items():
            known[key] = _searched(one)
    except (*DAMAGED, EngramError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    return known


def _plain(one: Searched) -> dict[str, Any]:
    """Return ``one`` for JSON."""
    return {
        "found": asdict(one.found),
        "trials": _listed(one.trials),
        "past": [[asdict(found), _listed(trials)] for found, trials in one.past],
        "recent": one.recent,
        "plain": one.plain,
        "breaches": one.breaches,
    }


def _listed(trials: Trials) -> list[Any]:
    return [[asdict(tried), *told] for tried, told in trials.items()]


def _searched(about: dict[str, Any]) -> Searched:
    """Return what :func:`_plain` made ``about`` of; raises one of ``DAMAGED``, or InvalidInputError."""
    past = [(MotionCorrection(**found), _trials(trials)) for found, trials in about["past"]]
    recent, plain = ([float(outcome) for outcome in about[name]][-WINDOW:] for name in ("recent", "plain"))
    found, breaches = MotionCorrection(**about["found"]), int(about["breaches"])
    if breaches < 0 or not all(0.0 <= outcome <= 1.0 for outcome in (*recent, *plain)):
        raise ValueError(f"breaches {breaches}, outcomes {recent} and {plain}")
    return Searched(found, _trials(about["trials"]), past, recent, plain, breaches)


def _trials(listed: list[Any]) -> Trials:
    trials = {}
    for about, times, mean in listed:
        tried = MotionCorrection(**about)
        CorrectionSearch().tell(tried, float(mean), int(times))
        trials[tried] = int(times), float(mean)
    return trials
