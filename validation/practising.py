"""Practice in the simulation that follows the robot: how the policy has to correct its motions there is searched for.

A robot makes a few hundred episodes a day, and what drives it may not change before a gate has allowed it. Here every
task is carried out a few times as the policy is. Where something goes wrong, every further episode tries another
correction of all motions (:mod:`engram.learning.motion_correction`), and the simulator says how near it came
(``oracle``: its truth is that of the simulation, never of the robot). What is surely better than no correction is left
for the learner, for all tasks at once. It becomes part of the weights; the candidate has to pass the gate as any other.
Then what is left is searched for from there, until nothing is found.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from engram.core.durable import seal, unseal, write_atomic
from engram.core.errors import DAMAGED, EngramError, InvalidInputError, StoreError
from engram.core.motion_correction import MotionCorrection
from engram.core.types import JointCommand, Observation, OracleOutcome, Transition
from engram.learning.experience.reader import ExperienceReader, stored_id
from engram.learning.experience.retention import ExperienceStoreConfig
from engram.learning.experience.store import ExperienceStore
from engram.learning.exploration import Exploration, ExplorationConfig
from engram.learning.motion_correction import CorrectionSearch, best_for_all, outcome_of
from engram.learning.practised import Findings, FoundCorrection, Practised
from engram.learning.progress import Progress, read_weights, saved_state
from engram.learning.workspace import PRACTICE, TRAINING
from engram.runtime.experience_recorder import ExperienceRecorder
from engram.runtime.practice import PracticeRecord
from engram.sim.gap_world import GapWorld, gap_pipeline
from engram.sim.gaps import Gap
from engram.sim.tasks import task_for
from engram.sim.world import WorldConfig

FIRST_SEED = 200_000
"""Scene of the first episode; nothing is measured or judged on it or those after it."""
RECENT = 20
"""Episodes of the robot that say what is practised, the newest."""
DRIVING = "driving.safetensors"
"""File of the weights that drive, beside what is practised."""
SEARCHES = "searches.json"
"""File of the searches and their trials, beside what is practised."""
TRIES = 5
"""How often the learner's state is read that it replaces meanwhile."""
KEPT = 200
"""Searches that are kept, the newest."""
LEARNT = 50
"""Episodes of a search that the learner learns a correction in, the newest."""


@dataclass(frozen=True)
class PracticeJob:
    """What is practised, and where."""

    learner: Path
    """The learner's folder; it may be running."""
    checkpoint: str
    """Policy that the learner began with."""
    gap: Gap
    """How the robot differs from the simulation."""
    tasks: tuple[str, ...]
    """What it shall be able to do, the most urgent first."""
    shown: int = 8
    """Episodes of each task without a correction, before any is searched for. If all of them go well, none is, and they
    show where the answers shall stay as they are."""
    search: int = 50
    """Episodes after which a search takes the best correction, if it is surely better than none; ``shown`` included."""
    most: int = 150
    """Episodes after which one that found nothing ends."""
    max_mb: float = 2048.0
    """Most experience on disk [MB]."""
    lasts_s: float = 300.0
    """Longest duration [s]; what the robot does is then looked at again."""
    together: bool = False
    """One correction holds for all tasks, as a frozen policy can have no more."""

    @property
    def robot(self) -> str:
        """Tells the gap from any other."""
        return hashlib.sha256(json.dumps(asdict(self.gap), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Attempt:
    """An episode of a search."""

    tried: MotionCorrection
    outcome: float
    number: int


@dataclass
class Searched:
    """A search for a correction."""

    task: str
    robot: str
    """Gap that the simulated robot has, see :attr:`PracticeJob.robot`."""
    after: int
    """Corrections that are part of the weights which drive."""
    trials: list[Attempt] = field(default_factory=list)
    found: MotionCorrection | None = None
    """Once it has ended; none: nothing is surely better than no correction."""
    store: str = ""
    """Id of the store whose episodes the trials number; empty: not known."""

    @property
    def correction(self) -> MotionCorrection:
        """What it found; none before it has ended."""
        return self.found or MotionCorrection()

    @property
    def uncorrected(self) -> tuple[int, ...]:
        """Numbers of the episodes that had no correction."""
        return tuple(trial.number for trial in self.trials if trial.tried == MotionCorrection())

    def search(self, others: Sequence[Searched] = ()) -> CorrectionSearch:
        """Return the search as it stands, with what was tried at other tasks."""
        made = CorrectionSearch(seed=self.after)
        for one in (self, *others):
            for trial in one.trials:
                made.tell(trial.tried, trial.outcome, task="" if one is self else one.task)
        return made

    def next(self, shown: int, others: Sequence[Searched]) -> MotionCorrection:
        """Return what to try in the next episode: nothing in the first ``shown``."""
        return MotionCorrection() if len(self.trials) < shown else self.search(others).next()

    def tell(
        self, job: PracticeJob, tried: MotionCorrection, outcome: float, number: int, others: Sequence[Searched]
    ) -> None:
        """Take note of a trial, which may end the search."""
        self.trials.append(Attempt(tried, outcome, number))
        count = len(self.trials)
        if count == job.shown and all(trial.outcome == 1.0 for trial in self.trials):
            self.found = MotionCorrection()
        elif count % job.search == 0 or count >= job.most:
            best = self.search(others).best()
            if best != MotionCorrection() or count >= job.most:
                self.found = best


class SearchBook:
    """The searches of a learner's folder; each trial is durable at once.

    A search whose episodes are those of another store is forgotten: what it would leave for the learner is gone.

    Attributes:
        forgotten: how many were.

    Raises:
        StoreError: its file, or the store, cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, path, self._store = folder, folder / SEARCHES, stored_id(folder)
        try:
            read = unseal(path.read_bytes()) if path.exists() else []
            known = [_searched(one) for one in read]
            self._searches = [one for one in known if one.store in ("", self._store)]
            self.forgotten = len(known) - len(self._searches)
            for one in self._searches:
                one.store = self._store
                one.search()
        except (*DAMAGED, EngramError) as error:
            raise StoreError(f"{path} cannot be read ({error}); remove it to search anew") from error

    def open(self, job: PracticeJob, corrections: int) -> Searched | str:
        """Return the search that goes on, or why none does, for weights that have ``corrections`` of them.

        Every task is carried out before any correction is searched for. Then the searches take turns, so that what each
        one decides in the end rests on the trials of all.
        """
        # after a refusal training goes on from earlier weights: those of other searches drive no more
        self._searches = [one for one in self._searches if one.after <= corrections]
        if left := self._left(corrections):
            return left
        going_on = []
        for task in job.tasks:
            wanted = Searched(task, job.robot, corrections, store=self._store)
            about = [
                one for one in self._searches if (one.task, one.robot, one.after) == (task, job.robot, corrections)
            ]
            if not about:
                self._searches.append(wanted)
                about = [wanted]
            going_on += [one for one in about if one.found is None]
        del self._searches[:-KEPT]
        if not going_on:
            refused = self._leave(job, corrections)  # it was removed, or other tasks were searched for as well
            if left := refused or self._left(corrections):
                return left
            return f"nothing more is found that makes {', '.join(job.tasks)} go better on a robot like this"
        shown = next((one for one in going_on if len(one.trials) < job.shown), None)
        return shown or min(going_on, key=lambda one: len(one.trials))

    def others(self, one: Searched) -> tuple[Searched, ...]:
        """Return the searches at other tasks that tell of ``one``, too: on the same robot, by the same weights."""
        about = one.robot, one.after
        return tuple(other for other in self._searches if other is not one and (other.robot, other.after) == about)

    def _left(self, corrections: int) -> str:
        """Say what is left for the learner, for weights that have ``corrections``; empty: nothing."""
        practised = Practised(self._folder)
        left = practised.findings()
        if left is None or left.number != corrections + 1 or practised.refusal(left):
            return ""
        return f"waits: the learner is to make {left} part of the weights"

    def tell(self, job: PracticeJob, one: Searched, tried: MotionCorrection, outcome: float, number: int) -> None:
        """Take note of a trial of the search ``one``; the last one of all leaves what was found to the learner."""
        one.tell(job, tried, outcome, number, self.others(one))
        if one.found is not None:  # first: who is killed now has left it
            self._leave(job, one.after)
        write_atomic(self._folder / SEARCHES, seal([asdict(each) for each in self._searches]))

    def _leave(self, job: PracticeJob, after: int) -> str:
        """Leave what the searches on weights with ``after`` corrections found, if all have ended and any did.

        Where weights with the same corrections may not drive, it is not left: return why.
        """
        its = [one for one in self._searches if one.robot == job.robot and one.task in job.tasks]
        ended = [one for one in its if one.after == after]
        if not ended or any(one.found is None for one in ended):
            return ""
        corrections = self._for_all(ended) if job.together else {one.task: one.correction for one in ended}
        found = [one for one in ended if corrections[one.task] != MotionCorrection()]
        if not found:
            return ""
        corrected = {one.task for one in found}
        others = {one.task: one.uncorrected[-job.shown :] for one in its if one.task not in corrected}
        numbers = [tuple(trial.number for trial in one.trials[-LEARNT:]) for one in found]
        shown = [FoundCorrection(one.task, corrections[one.task], its) for one, its in zip(found, numbers, strict=True)]
        findings, practised = (
            Findings(after + 1, tuple(shown), tuple(sum(others.values(), ())), self._store),
            Practised(self._folder),
        )
        if why := practised.refusal(findings):
            return f"nothing more is found: {findings} was refused ({why})"
        practised.tell(findings)
        return ""

    def _for_all(self, ended: Sequence[Searched]) -> dict[str, MotionCorrection]:
        """Return the one correction that makes the tasks of the searches ``ended`` go better together, by task; none
        where no search found any."""
        if all(one.correction == MotionCorrection() for one in ended):
            return dict.fromkeys((one.task for one in ended), MotionCorrection())
        best = best_for_all([one.search(self.others(one)) for one in ended])
        return dict.fromkeys((one.task for one in ended), best)


def _searched(about: dict[str, Any]) -> Searched:
    """Return the search that ``asdict`` and JSON made ``about`` of."""
    trials = [Attempt(MotionCorrection(**one["tried"]), float(one["outcome"]), int(one["number"]))
              for one in about["trials"]]  # fmt: skip
    found = None if about["found"] is None else MotionCorrection(**about["found"])
    its = str(about["task"]), str(about["robot"]), int(about["after"])
    return Searched(*its, trials, found, str(about.get("store", "")))


@dataclass
class Done:
    """What was practised."""

    episodes: dict[str, int] = field(default_factory=dict)
    """Of each task."""
    successes: dict[str, int] = field(default_factory=dict)
    said: str = ""
    """What came of it, once something did."""
    anew: int = 0
    """Searches that began anew, as their episodes were gone."""

    def add(self, task: str, success: bool) -> None:
        """Count an episode."""
        self.episodes[task] = self.episodes.get(task, 0) + 1
        self.successes[task] = self.successes.get(task, 0) + success

    def __str__(self) -> str:
        told = [f"{task} {self.successes[task]} of {count}" for task, count in self.episodes.items()]
        words = f"in simulation went well: {', '.join(told)}"
        if self.anew:
            words += f"; {self.anew} searches began anew, as the store with their episodes is gone"
        return f"{words}; {self.said}" if self.said else words


def asked_lately(experience: Path, known: Sequence[str]) -> tuple[str, ...]:
    """Return those of the tasks ``known`` that the newest episodes stored in ``experience`` asked for, by their words.

    Raises:
        StoreError: nothing is stored there, or it is damaged.
    """
    found: dict[str, None] = {}
    for info in reversed(ExperienceReader(experience).catalogue()[-RECENT:]):
        try:
            found[task_for(info.instruction)] = None
        except InvalidInputError:
            continue  # no task of the simulation has such words
    return tuple(task for task in found if task in known)


def nothing_to_do(job: PracticeJob) -> str:
    """Return why nothing is to be practised now; empty: something is.

    Raises:
        StoreError: the searches that there are cannot be read.
    """
    found = read_weights(job.learner / TRAINING, saved_state(job.learner / TRAINING))
    if found is None and saved_state(job.learner / TRAINING):
        return ""  # it was replaced meanwhile: who practises reads it again
    going_on = SearchBook(job.learner / PRACTICE).open(job, found[0].corrections if found else 0)
    return going_on if isinstance(going_on, str) else ""


def practise(job: PracticeJob) -> Done:
    """Search until something is found, nothing is left to be found, or ``job.lasts_s`` are over.

    The newest weights of the learner's training drive. Each episode is durable at once; may be killed at any time.

    Raises:
        StoreError: another process practises, or what it keeps is damaged.
        UnknownNameError, WeightsError: the policy or its weights cannot be loaded.
        InvalidInputError: this policy cannot be corrected.
    """
    store = ExperienceStore(job.learner / PRACTICE, ExperienceStoreConfig(max_mb=job.max_mb))
    try:
        book, ends_s = SearchBook(job.learner / PRACTICE), time.monotonic() + job.lasts_s
        done = Done(anew=book.forgotten)
        simulated = _Simulated(job, store)
        while time.monotonic() < ends_s:
            simulated.take_newest()
            one = book.open(job, simulated.corrections)
            if isinstance(one, str):
                done.said = one if done.episodes else ""
                break
            tried = one.next(job.shown, book.others(one))
            number, success, outcome = simulated.episode(one.task, tried)
            book.tell(job, one, tried, outcome, number)
            done.add(one.task, success)
        return done
    finally:
        store.close()


class _Simulated:
    """The simulated robot of a job, driven by what was learnt last."""

    def __init__(self, job: PracticeJob, store: ExperienceStore) -> None:
        from engram.learning.algorithms.motion_edit import MotionEdit, frozen  # torch: only for those who practise
        from engram.policies.loading import load_policy
        from engram.policies.vla.chunking import follow
        from engram.validation.evaluation import make_runtime

        self._job, self._record = job, PracticeRecord(store)
        self._policy = load_policy(job.checkpoint)
        if frozen(self._policy):
            MotionEdit(self._policy)  # says why there can be none
        for left in (job.learner / PRACTICE).glob("*.partial"):  # of one who was killed
            left.unlink()
        self._world = GapWorld(job.gap, WorldConfig(depth=self._policy.reads_context))
        self._runtime = make_runtime(follow(self._policy), self._world, pipeline=gap_pipeline(self._world))
        controller = self._runtime.pipeline.controller
        self._runtime.recorder = ExperienceRecorder(
            controller.kinematics, controller.robot, self._add, self._record.next
        )
        self._explore = self._runtime.explore = Exploration(ExplorationConfig(size=0.0))
        known = store.catalogue()
        self._number = known[-1].number if known else 0
        self._progress, self._drives = Progress(""), ""

    @property
    def corrections(self) -> int:
        """How many of them are part of the weights that drive."""
        return self._progress.corrections

    def _add(self, step: Transition) -> None:
        self._record.add(replace(step, task=""))  # as a robot's: its words say what it is about

    def take_newest(self) -> None:
        """Let the newest weights of the learner's training drive; StoreError: they cannot be read."""
        folder = self._job.learner / TRAINING
        for _ in range(TRIES):
            newest = saved_state(folder)
            if newest == self._drives:
                return
            if (found := read_weights(folder, newest)) is None:
                continue  # it was replaced meanwhile
            (self._progress, weights), self._drives = found, newest
            copy = self._job.learner / PRACTICE / DRIVING
            write_atomic(copy, weights)  # the learner deletes its own
            self._policy.load_weights(copy, f"training-{self._progress.updates:07d}")
            return
        raise StoreError(f"{folder / newest}: the learner's state cannot be read")

    def episode(self, task: str, tried: MotionCorrection) -> tuple[int, bool, float]:
        """Run one episode with ``tried`` and keep it; return its number, whether it went well, and how near it came."""
        self._number += 1
        self._record.begin()
        self._explore.correction = tried
        nearest = 0.0

        def watch(seen: Observation, command: JointCommand, outcome: OracleOutcome) -> None:
            nonlocal nearest
            assert self._world.task is not None
            nearest = max(nearest, self._world.task.oracle_progress(self._world))

        self._runtime.run_episode(task, FIRST_SEED + self._number, on_step=watch)
        success = self._record.keep()
        return self._number, success, outcome_of(success, nearest)
