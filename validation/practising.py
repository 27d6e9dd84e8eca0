"""Practice in the simulation that follows the robot: what the robot is asked for is tried again and again there.

A robot makes a few hundred episodes a day, and what drives it may not change before a gate has allowed it. Here
what was learnt last drives at once, as in ``engram improve``, and the simulator says what went well (``oracle``: its
truth is that of the simulation, never of the robot). The learner takes the successes beside those of the robot; its
candidates have to pass the gate as before.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from engram.core.errors import InvalidInputError
from engram.core.types import Transition
from engram.learning.experience.database import write_atomic
from engram.learning.experience.reader import ExperienceReader
from engram.learning.experience.retention import ExperienceStoreConfig
from engram.learning.experience.store import ExperienceStore
from engram.learning.exploration import Exploration, ExplorationConfig
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
AHEAD = 5
"""Practice waits while the learner has so many successes still to learn from, or as many as it begins with if those are
more."""


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
    """What the robot was asked for."""
    others: tuple[str, ...] = ()
    """What the policy shall not unlearn meanwhile."""
    share_others: float = 0.4
    """Share of the episodes that go to ``others``."""
    exploration: float = 0.1
    """Standard deviation of the noise on a motion, as a share of 0.05 + 0.5 of it."""
    max_mb: float = 2048.0
    """Most experience on disk [MB]."""
    episodes: int = 100
    """Most episodes; what the robot does is then looked at again."""
    lasts_s: float = 300.0
    """Longest duration [s]."""


@dataclass(frozen=True)
class Practised:
    """What came of it."""

    episodes: int = 0
    successes: int = 0
    tasks: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.successes} of {self.episodes} episodes of {', '.join(self.tasks)} went well in simulation"


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


def practise(job: PracticeJob) -> Practised:
    """Practise until ``job.episodes`` are done or ``job.lasts_s`` are over; each episode is durable at once.

    The newest weights of the learner's training drive. May be killed at any time.

    Raises:
        StoreError: another process practises, or what it keeps is damaged.
        UnknownNameError, WeightsError: the policy or its weights cannot be loaded.
    """
    store = ExperienceStore(job.learner / PRACTICE, ExperienceStoreConfig(max_mb=job.max_mb))
    try:
        simulated, ends_s = _Simulated(job, store), time.monotonic() + job.lasts_s
        told: list[tuple[str, bool]] = []
        while len(told) < job.episodes and time.monotonic() < ends_s:
            simulated.take_newest()
            if simulated.learner_is_behind():
                time.sleep(0.5)
            else:
                told.append(simulated.episode())
        tasks = tuple(dict.fromkeys(task for task, _ in told))
        return Practised(len(told), sum(well for _, well in told), tasks)
    finally:
        store.close()


class _Simulated:
    """The simulated robot of a job, driven by what was learnt last."""

    def __init__(self, job: PracticeJob, store: ExperienceStore) -> None:
        from engram.policies.loading import load_policy  # torch: only for those who practise
        from engram.policies.vla.chunking import follow
        from engram.validation.evaluation import make_runtime

        self._job, self._store, self._record = job, store, PracticeRecord(store)
        self._policy = load_policy(job.checkpoint)
        self._world = GapWorld(job.gap, WorldConfig(depth=self._policy.reads_context))
        self._runtime = make_runtime(follow(self._policy), self._world, pipeline=gap_pipeline(self._world))
        controller = self._runtime.pipeline.controller
        self._runtime.recorder = ExperienceRecorder(
            controller.kinematics, controller.robot, self._add, self._record.next
        )
        self._runtime.explore = Exploration(ExplorationConfig(size=job.exploration), FIRST_SEED)
        known = store.catalogue()
        self._number = known[-1].number if known else 0
        self._progress, self._drives = Progress(""), ""

    def _add(self, step: Transition) -> None:
        self._record.add(replace(step, task=""))  # as a robot's: its words say what it is about

    def take_newest(self) -> None:
        """Let the newest weights of the learner's training drive."""
        newest = saved_state(self._job.learner / TRAINING)
        if newest != self._drives and (found := read_weights(self._job.learner / TRAINING, newest)) is not None:
            (self._progress, weights), self._drives = found, newest
            copy = self._job.learner / PRACTICE / DRIVING
            write_atomic(copy, weights)  # the learner deletes its own
            self._policy.load_weights(copy, f"training-{self._progress.updates:07d}")

    def learner_is_behind(self) -> bool:
        """Tell whether the learner has enough to learn from as it is."""
        progress, config = self._progress, self._progress.config
        paid, first = int(config.get("updates_per_episode", 1)), int(config.get("first_episodes", 0))
        unseen = sum(one.success for one in self._store.catalogue(progress.practised_cursor))
        return unseen + progress.update_credit / paid >= max(AHEAD, first)

    def episode(self) -> tuple[str, bool]:
        """Run one episode, and keep it; return its task and whether it went well."""
        self._number += 1
        seed = FIRST_SEED + self._number
        task = self._choose(np.random.default_rng(seed))
        self._record.begin()
        self._runtime.run_episode(task, seed)
        return task, self._record.keep()

    def _choose(self, rng: np.random.Generator) -> str:
        job = self._job
        kind = job.others if job.others and rng.random() < job.share_others else job.tasks
        return kind[int(rng.integers(len(kind)))]
