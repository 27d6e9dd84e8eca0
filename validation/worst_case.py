"""Where is a policy weakest? A search over how a robot may deviate, and the places that were found.

The search begins with a Latin hypercube (McKay, Beckman & Conover 1979), which has both ends of every deviation's
range, and goes on from the worst of these places by CMA-ES (Hansen & Ostermeier 2001), as in incremental worst-case
search (IWOCS, Zouitine, Geist & Rachelson 2024, arXiv:2410.06212). It moves towards deviations at which the policy
fails, or needs long. A place counts only if it is confirmed: in new scenes, the policy is shown to succeed less often
there than on robots that deviate at random. Each is kept, and every later candidate has to hold its ground there, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import cma
import numpy as np
from scipy.stats import qmc

from engram.core.betting import MeanTest
from engram.core.durable import write_atomic
from engram.core.errors import DAMAGED, InvalidInputError, StoreError
from engram.sim.gaps import DEVIATIONS, deviations
from engram.sim.tasks import get_task
from engram.validation.trials import Contender, Trial, Wanted, at_place

SUFFIX = "@worst"
"""Ends the name that a task has for the gate at its worst places."""
SEARCH_SEED, CONFIRM_SEED = 90_000, 95_000
"""First scenes of the search, and of the confirmation; the gate decides on others."""
PLACES, SCENES = 10, 2
"""Places that are tried before the search moves, and scenes in which each is tried."""
SPREAD = 0.3
"""Standard deviation of the places about the worst of the first, of each deviation's range."""
ERROR = 0.05
"""Probability that a place is kept at which the policy is no weaker, at most."""
FEWEST = 4 * PLACES * SCENES
"""Episodes that a search needs: two moves, and as many again to confirm."""

Run = Callable[[Sequence[Wanted]], list[Trial]]
"""Runs trials and returns what came of each, in their order."""


@dataclass(frozen=True)
class WorstCase:
    """A place at which a policy was shown to be weak."""

    task: str
    on: str
    """The gap from which robots deviate."""
    place: tuple[float, ...]
    """(15,) 0..1, as :func:`engram.sim.gaps.deviated` takes it."""
    found_by: str
    """sha256 of the policy's weights."""
    successes: int
    """Of ``n`` scenes there."""
    usual: int
    """Of the same scenes on robots that deviate at random."""
    n: int

    def __str__(self) -> str:
        far = {name: value for (name, value), at in zip(deviations(self.place).items(), self.place, strict=True)
               if abs(at - 0.5) > 0.25}  # fmt: skip
        what = ", ".join(f"{name} {value:.3g}" for name, value in far.items()) or "near the middle of all ranges"
        return f"{self.task}: {self.successes} of {self.n}, elsewhere {self.usual}, with {what}"


class WorstCases:
    """The places that were found so far, kept in ``folder``/worst.json.

    Raises:
        StoreError: the file is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "worst.json"
        self._cases: list[WorstCase] = []
        if not self._path.exists():
            return
        try:
            for one in json.loads(self._path.read_text()):
                case = WorstCase(**{**one, "place": tuple(map(float, one["place"]))})
                deviations(case.place)
                self._cases.append(case)
        except (*DAMAGED, InvalidInputError) as error:
            raise StoreError(f"{self._path}: the worst cases cannot be read: {error!r}") from error

    def of(self, task: str, on: str) -> list[WorstCase]:
        """Return the cases of ``task`` on robots like ``on``, oldest first."""
        return [case for case in self._cases if (case.task, case.on) == (task, located(on))]

    def add(self, case: WorstCase) -> None:
        """Keep ``case``; it is durable when this returns. The same place is kept once."""
        case = replace(case, on=located(case.on))
        if any(case.place == known.place for known in self.of(case.task, case.on)):
            return
        self._cases.append(case)
        write_atomic(self._path, json.dumps([asdict(one) for one in self._cases], indent=1).encode())


def located(on: str) -> str:
    """Return ``on``, a gap's file with its whole path: it is the same from every folder, and another robot's is not."""
    return str(Path(on).expanduser().resolve()) if on.endswith(".json") else on


def find_worst(who: Contender, task: str, on: str, run: Run, episodes: int) -> WorstCase | None:
    """Return the place at which ``who`` is weakest on ``task``; None: none was confirmed.

    Half of the ``episodes`` search, the others confirm. The same arguments give the same answer.

    Raises:
        InvalidInputError: too few episodes.
    """
    if episodes < FEWEST:
        raise InvalidInputError(f"worst case: {episodes} episodes a task, expected {FEWEST} or more")
    return weakest(who, task, on, _search(who, task, run, episodes // 2), run, episodes)


def weakest(
    who: Contender, task: str, on: str, favourites: Sequence[tuple[float, ...]], run: Run, episodes: int
) -> WorstCase | None:
    """Return the weakest of ``favourites`` that half of the ``episodes`` confirm."""
    scenes = episodes // 2 // len(favourites) // 2
    found = [case for place in favourites if (case := _confirmed(who, task, on, place, run, scenes)) is not None]
    return min(found, key=lambda case: case.successes / case.n, default=None)


def _search(who: Contender, task: str, run: Run, episodes: int) -> list[tuple[float, ...]]:
    """Return the place where the search ended, and the worst one that it tried.

    The first places have every tenth of each range once, both its ends among them; it goes on from the worst of these.
    """
    limit, worst = get_task(task).max_steps, dict[tuple[float, ...], float]()

    def tried(places: Sequence[np.ndarray], generation: int) -> list[float]:
        named = [rounded(place) for place in places]
        seeds = [SEARCH_SEED + generation * SCENES + i for i in range(SCENES)]
        trials = run([(who, at_place(task, place), seed) for place in named for seed in seeds])
        scores = np.reshape([score(trial, limit) for trial in trials], (PLACES, SCENES)).mean(1).tolist()
        worst.update(zip(named, scores, strict=True))
        return list(scores)

    first = qmc.LatinHypercube(len(DEVIATIONS), seed=1).random(PLACES)
    start = first[int(np.argmin(tried(first, 0)))]
    options = {"bounds": [0.0, 1.0], "popsize": PLACES, "seed": 1, "verbose": -9}
    search = cma.CMAEvolutionStrategy(start, SPREAD, options)
    for generation in range(1, episodes // (PLACES * SCENES)):
        asked = search.ask()
        search.tell(asked, tried(asked, generation))
    return list(dict.fromkeys((rounded(search.result.xfavorite), min(worst, key=worst.__getitem__))))


def score(trial: Trial, limit: int) -> float:
    """Return how good a trial was: up to 0.5 for the progress of a failure, up to 1 for a quick success."""
    return 1.0 - 0.5 * min(1.0, trial.steps / limit) if trial.success else 0.5 * trial.progress


def _confirmed(who: Contender, task: str, on: str, place: tuple[float, ...], run: Run, scenes: int) -> WorstCase | None:
    """Return the case if ``who`` is shown to succeed less often at ``place``; stops as soon as it is."""
    test, there, usual = MeanTest(1.0), 0, 0
    for i in range(scenes):
        here, elsewhere = run([(who, name, CONFIRM_SEED + i) for name in (at_place(task, place), task)])
        there, usual = there + here.success, usual + elsewhere.success
        test.add(float(elsewhere.success) - float(here.success))
        if test.shown(ERROR / 2):  # two places are tried
            return WorstCase(task, on, place, who.sha256, there, usual, i + 1)
    return None


def rounded(place: np.ndarray) -> tuple[float, ...]:
    """Return ``place`` as its name has it."""
    return tuple(round(float(at), 3) for at in np.clip(place, 0.0, 1.0))
