"""Episodes of a policy on a robot that is set up a little differently in each scene; every result is kept on disk.

A trial is named by the weights, the task, the seed and the environment, so what was run once is never run again, and an
interrupted validation goes on where it was.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import astuple, dataclass
from importlib.metadata import version
from pathlib import Path

import mujoco
import numpy as np

from engram.core.contracts import Policy
from engram.core.errors import WeightsError
from engram.core.provenance import digest, source_digest
from engram.core.registry import is_spec, split_options
from engram.core.types import ActionChunk, JointCommand, MemoryTokens, Observation, OracleOutcome
from engram.learning.experience.database import Database
from engram.runtime.factories import policy_folder
from engram.runtime.loop import Runtime
from engram.sim.gap_world import GapWorld, gap_pipeline
from engram.sim.gaps import Gap, deviated, get_gap, varied
from engram.sim.tasks import task_class
from engram.sim.world import WorldConfig

FIRST_SEED = 80_000
"""Scenes of the gate; nothing trains, practises or is measured on them."""
NOMINAL = "none"
"""The gap of the tabletop as it was trained on: none."""
IDLE = "idle"
"""The contender that stands still."""
WAITING = "no_command"
"""Why the safety filter holds when nobody asks for a motion: no fault of the policy's."""
ROOMS = ("core", "memory", "perception", "policies", "runtime", "sim")
"""What an episode goes through."""
SCHEMA = """CREATE TABLE trials (
    weights TEXT, environment TEXT, task TEXT, seed INTEGER, success INTEGER, breach REAL, steps INTEGER,
    progress REAL, PRIMARY KEY (weights, environment, task, seed)) WITHOUT ROWID"""


@dataclass(frozen=True)
class Contender:
    """A policy that is tried."""

    checkpoint: str
    """Its folder or shipped name; ``idle``: a robot that stands still."""
    weights: str = ""
    """A weight file in place of the folder's own."""
    sha256: str = IDLE
    """Of the weights."""
    settings: str = ""
    """Digest of the folder: its network, its processors, and how chunks are executed."""

    @property
    def key(self) -> str:
        """What its results are kept under."""
        return f"{self.sha256}/{self.settings}"


@dataclass(frozen=True)
class Trial:
    """What came of one episode."""

    task: str
    seed: int
    success: bool
    """By the simulator: the gate scores with what it knows."""
    breach: float
    """How much the safety filter had to intervene, 0 to 1. 1: it refused a command, and held the robot. Else the share
    of the control steps in which it changed the command, lest a limit of the joints is passed or something is touched.
    """
    steps: int
    progress: float
    """How near the episode came to success, 0 to 1; 1: it succeeded."""


def environment_digest(on: str = NOMINAL) -> str:
    """Return 12 hex digits that change with MuJoCo, the renderer, assets, tasks, how trials are run, and the gap.

    A verdict that was found under another digest says nothing here. ``on`` is as in :func:`engram.sim.gaps.get_gap`.
    """
    code = digest(*(f"{room}/**/*.py" for room in ROOMS), "validation/trials.py")
    about = f"{code} mujoco {mujoco.__version__} gym-hil {version('gym-hil')} {os.environ.get('MUJOCO_GL', '')}"
    return hashlib.sha256(f"{about} {get_gap(on)}".encode()).hexdigest()[:12]


class IdlePolicy(Policy):
    """Stands still: what any policy has to beat."""

    @property
    def version(self) -> str:
        """Who it is."""
        return IDLE

    def reset(self, instruction: str, episode: int = 0, seed: int = 0) -> None:
        """Begin an episode."""
        self._episode = episode

    def observe(self, observation: Observation, memory: MemoryTokens | None = None) -> None:
        """Take in one control step: its time."""
        self._stamp_ns = observation.stamp_ns

    def act(self) -> ActionChunk:
        """Return a motion of zero with an open hand."""
        return ActionChunk(self._stamp_ns, self._episode, "ee_delta", np.zeros((8, 7)), 0.1, 8, IDLE)

    def load_weights(self, path: Path, version: str) -> None:
        """Take nothing: there are no weights."""


class TrialStore:
    """Results on disk, in ``folder``, of robots like ``on`` (see :func:`engram.sim.gaps.get_gap`); one process writes.

    Raises:
        UnknownNameError: there is no such gap; lists those there are.
        InvalidInputError: its file cannot be read.
        StoreError: another process writes it, or the file is damaged.
    """

    def __init__(self, folder: Path, on: str = NOMINAL) -> None:
        self.gap = get_gap(on)
        """The gap: a file that changes later changes nothing here."""
        folder.mkdir(parents=True, exist_ok=True)
        self._database = Database(
            folder / "trials.sqlite", SCHEMA, 3, dict.fromkeys((1, 2), f"DROP TABLE trials;{SCHEMA}")
        )
        self.on, self.environment = on, environment_digest(on)
        self._own: dict[str, str] = {}  # task of the user's -> the environment with its source

    def _environment_of(self, task: str) -> str:
        """Return what results of ``task`` are kept under: what was found before a user edited a task is not known."""
        name = task.partition("@")[0]
        if not is_spec(split_options(name)[0]):
            return self.environment
        if name not in self._own:
            self._own[name] = f"{self.environment}-{source_digest([task_class(name)])}"
        return self._own[name]

    def get(self, who: Contender, task: str, seed: int) -> Trial | None:
        """Return what came of this trial, if it was run."""
        where = "weights = ? AND environment = ? AND task = ? AND seed = ?"
        found = self._database.execute(
            f"SELECT success, breach, steps, progress FROM trials WHERE {where}",
            (who.key, self._environment_of(task), task, seed),
        ).fetchone()
        return (
            None
            if found is None
            else Trial(task, seed, bool(found[0]), float(found[1]), int(found[2]), float(found[3]))
        )

    def put(self, who: Contender, trial: Trial) -> None:
        """Keep a result; it is durable when this returns."""
        self._database.begin()
        row = (who.key, self._environment_of(trial.task), *astuple(trial))
        self._database.execute("INSERT OR IGNORE INTO trials VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        self._database.commit()

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()


Wanted = tuple[Contender, str, int]
"""Who, on which task, in which scene."""


def run_all(
    wanted: Sequence[Wanted], store: TrialStore, pool: Executor, ran: Callable[[], None] = lambda: None
) -> Iterator[Trial]:
    """Yield the result of each of ``wanted``, in that order, whatever the number of processes; run what is missing.

    ``ran`` is called after each episode that was run.
    """
    missing = {job: pool.submit(run_trial, *job, store.gap) for job in dict.fromkeys(wanted) if store.get(*job) is None}
    try:
        for job in wanted:
            if job in missing:
                store.put(job[0], missing.pop(job).result())
                ran()
            found = store.get(*job)
            assert found is not None
            yield found
    finally:
        for future in missing.values():
            future.cancel()


def at_place(task: str, place: Sequence[float]) -> str:
    """Return the name of ``task`` on a robot with the deviations at ``place``, as :func:`run_trial` takes it."""
    return f"{task}@{','.join(f'{at:.3f}' for at in place)}"


def run_trial(who: Contender, task: str, seed: int, gap: Gap | None = None) -> Trial:
    """Run one episode; ``seed`` draws the scene, and how the robot deviates from ``gap`` (None: none).

    Where ``task`` names a place (:func:`at_place`), the robot deviates as that says.
    """
    gap = gap or Gap()
    runtime, world = _ready(who, gap.limits)
    name, _, place = task.partition("@")
    world.gap = deviated(gap, [float(at) for at in place.split(",")]) if place else varied(gap, seed)
    runtime.pipeline.controller.gap = world.gap  # type: ignore[attr-defined]
    counts = runtime.pipeline.filter.counts
    refused, changed, known, nearest = False, 0, _limited(counts), 0.0

    def watch(seen: Observation, command: JointCommand, outcome: OracleOutcome) -> None:
        nonlocal refused, changed, known, nearest
        assert world.task is not None
        refused |= command.held not in ("", WAITING)
        before, known = known, _limited(counts)
        changed += known > before
        nearest = max(nearest, world.task.oracle_progress(world))

    result = runtime.run_episode(name, seed, on_step=watch)
    progress = 1.0 if result.oracle_success else min(nearest, 1.0)
    breach = 1.0 if refused else changed / max(1, result.steps)
    return Trial(task, seed, result.oracle_success, breach, result.steps, progress)


def _limited(counts: Mapping[str, int]) -> int:
    """Return how often a safety filter with these counts has brought a command to a limit, or kept it from touching."""
    return sum(count for name, count in counts.items() if name.endswith("_limited"))


@functools.lru_cache(maxsize=3)
def _ready(who: Contender, limits: float) -> tuple[Runtime, GapWorld]:
    """Return what runs ``who`` within the share ``limits`` of the robot's limits; a process keeps the last few."""
    from engram.policies.loading import load_policy  # torch: only in the processes that run networks
    from engram.policies.vla.chunking import follow
    from engram.validation.evaluation import make_runtime

    if who.checkpoint == IDLE:
        policy: Policy = IdlePolicy()
    else:
        loaded = load_policy(who.checkpoint)
        if who.weights:
            loaded.load_weights(Path(who.weights), who.sha256)
        _check_unchanged(who)
        policy = follow(loaded)
    world = GapWorld(Gap(limits=limits), WorldConfig(depth=policy.reads_context))
    return make_runtime(policy, world, pipeline=gap_pipeline(world)), world


def _check_unchanged(who: Contender) -> None:
    """Raise WeightsError where the files of ``who`` are no longer those that its results are kept under."""
    from engram.policies.checkpoint import WEIGHTS, fingerprint, sha256

    folder = policy_folder(who.checkpoint)
    weights = Path(who.weights) if who.weights else folder / WEIGHTS
    if sha256(weights) != who.sha256 or (who.settings and fingerprint(folder) != who.settings):
        raise WeightsError(
            f"{weights if who.weights else folder}: its files have changed since the validation began, as while it is "
            f"trained (weights {sha256(weights)[:12]}, expected {who.sha256[:12]}); validate a copy"
        )
