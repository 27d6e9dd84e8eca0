"""Practice in one process without ROS: a policy tries a task again and again, and learns from what went well.

The nodes do the same over topics: policy_node explores and records, memory_node judges, learner_node stores and trains.
Everything that lasts lies in one folder; a practice that was killed goes on with the episode it was at.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from engram.core.contracts import Detector, Memory, Policy, World
from engram.core.durable import write_atomic
from engram.core.errors import DAMAGED, CannotTrainError, InvalidInputError, StoreError
from engram.core.motion_correction import MotionCorrection
from engram.core.pipeline import CommandPipeline
from engram.core.types import PolicyManifest, Transition
from engram.learning.algorithms import make_algorithm
from engram.learning.experience.reader import ExperienceReader
from engram.learning.experience.retention import ExperienceStoreConfig
from engram.learning.experience.store import ExperienceStore
from engram.learning.exploration import Exploration, ExplorationConfig
from engram.learning.learner import Learner
from engram.learning.learner_config import LearnerConfig
from engram.learning.motion_correction import CorrectionSearch, outcome_of
from engram.learning.replay.buffer import ReplayConfig
from engram.learning.replay.earlier import open_earlier
from engram.learning.rewards.contract import RewardSource
from engram.runtime.demonstration_replay import Demonstration, DemonstrationReplay
from engram.runtime.experience_recorder import ExperienceRecorder
from engram.runtime.loop import Runtime
from engram.runtime.oracle_helper import HelpConfig, OracleHelper, check_help
from engram.sim.world import MujocoWorld

OTHERS = "others"
"""Folder of what the policy did before practice while it carried out other goals."""
FIRST_REHEARSED_SEED = 95_000
"""Scenes of other goals; nothing is practised or measured on them."""
KEPT = "practice.json"
"""File in the folder that says what is practised."""
STREAM = ("practice", "0")
"""Robot and boot of the transitions."""


@dataclass(frozen=True)
class PracticeConfig:
    """How a policy practises."""

    algorithm: str = "behavior_cloning"
    """Update rule: a name, or package.module:attribute of your own."""
    exploration: float = 0.1
    """Standard deviation of the noise on a motion, as a share of 0.05 + 0.5 of it; 0: none."""
    hold_steps: int = 4
    """Control steps for which a draw of it is kept; 0: the whole episode."""
    updates: int = 40
    """Updates that each success pays for, and with critics each failure; then the new weights drive. 0: nothing is
    learnt, the experience alone is kept."""
    first_successes: int = 5
    """Successes to wait for before the first update."""
    search: int = 0
    """Episodes of a search for a correction of all motions. Each is driven with one correction; then the best one, if
    it is surely better than none, becomes part of the weights and the next search begins, else the search goes on for
    as long again. 0: imitate noisy successes instead."""
    rehearsed: int = 0
    """Episodes of each other task that the policy carries out before practice begins: what it sees there is rehearsed,
    so that it does not unlearn them; 0: other goals are rehearsed in the scenes of the practised one."""
    first_seed: int = 20_000
    """Scene of the first episode."""
    seed: int = 0
    """Of noise, samples and updates."""
    max_mb: float = 2048.0
    """Most experience on disk [MB]."""
    earlier: tuple[str, ...] = ()
    """Folders with the experience of earlier experiments, which half of each batch is drawn from."""
    help: HelpConfig = field(default_factory=lambda: HelpConfig(share=0.0))
    """How a scripted expert takes over, as a person would; it knows the simulator's state (oracle). Share 0: never."""

    def __post_init__(self) -> None:
        if self.search < 0:
            raise InvalidInputError(f"PracticeConfig.search: {self.search}, expected 0 or more")


@dataclass(frozen=True)
class PracticeEpisode:
    """What came of one episode."""

    number: int  # from 1
    seed: int
    steps: int
    success: bool  # as the learner was told
    oracle_success: bool  # by the simulator; it scores, and nothing learns from it where a judge was given
    updates: int  # so far
    helped: int  # control steps that were driven by the expert that stands for a person
    scale: float  # the correction that was tried, see MotionCorrection
    yaw_rad: float
    shift_x: float
    shift_y: float
    outcome: float  # half of it for success, half for how near it came, as the learner was told
    again: int = 0  # number of the episode that failed, and whose scene it was; 0: a new scene
    lost_at: float = 0.0  # by the simulator, the progress at which it began to fail, if it did; 0: nobody looked
    replayed: int = 0  # control steps that a demonstration drove


class PracticeRecord:
    """Keeps what is practised in ``store``, an episode at a time: ``add`` and ``next`` are for a recorder."""

    def __init__(self, store: ExperienceStore) -> None:
        self._store, self._steps = store, list[Transition]()
        self._acked = store.commit().get(STREAM, 0)  # transitions that are stored

    def begin(self) -> None:
        """Forget what was not kept."""
        self._steps.clear()

    def add(self, step: Transition) -> None:
        """Take in a step of the episode."""
        self._steps.append(step)

    def next(self) -> int:
        """Return the number of the next transition."""
        return self._acked + 1

    def keep(self) -> bool:
        """Make the episode durable; tell whether its end says that it went well."""
        robot, boot = STREAM
        numbered = enumerate(self._steps, self.next())
        self._store.append([replace(one, robot_id=robot, boot_id=boot, sequence=number) for number, one in numbered])
        self._acked = self._store.commit().get(STREAM, 0)
        return bool(self._steps and self._steps[-1].success)


class Practice:
    """A policy that learns a task from its own verdicts.

    Args:
        world: where it acts; a simulation's, if it is to be helped.
        pipeline: of its robot.
        policy: acts, and is where learning begins; it gets the new weights.
        task: what is practised.
        folder: for experience, training state and the list of episodes.
        config: how.
        trained: whose network is learnt, where ``policy`` wraps another one; default: ``policy``.
        judge: tells what went well; it needs ``detector`` and ``fresh_memory``, as does a policy that acts on
            memory/context. None: the simulator tells.
        demonstrations: what is replayed in the scenes that are practised, where the memory sees the things of the
            words; it needs ``detector`` and ``fresh_memory``. The policy drives where nothing can be replayed.
        others: tasks that the policy shall not unlearn.
        elsewhere: makes what it carries these out in before it practises; default: as ``world``, where it may fail at
            most of them.
        about: what else tells this practice from others, as JSON takes it; also in place of who judges (``judge``).
        before: what holds of a folder of an earlier version, where that does not say it of what ``about`` names.

    Raises:
        InvalidInputError: the policy cannot be trained by the algorithm, or the folder is of another practice.
    """

    def __init__(
        self,
        world: World,
        pipeline: CommandPipeline,
        policy: Policy,
        task: str,
        folder: Path,
        config: PracticeConfig | None = None,
        *,
        trained: Policy | None = None,
        judge: RewardSource | None = None,
        detector: Detector | None = None,
        fresh_memory: Callable[[], Memory] | None = None,
        demonstrations: Sequence[Demonstration] = (),
        others: Sequence[str] = (),
        elsewhere: Callable[[], Runtime] | None = None,
        about: Mapping[str, object] | None = None,
        before: Mapping[str, object] | None = None,
    ) -> None:
        self.config, self.task, self.policy = config or PracticeConfig(), task, policy
        check_help(self.config.help, task)
        algorithm = make_algorithm(self.config.algorithm, trained or policy)
        if self.config.search and not algorithm.can_correct:
            raise InvalidInputError(
                f"PracticeConfig.search: {self.config.search}: {type(algorithm).__name__} cannot make a correction "
                "part of the weights of this policy, expected 0"
            )
        if algorithm.frozen and not self.config.search and self.config.updates:
            raise CannotTrainError(f"PracticeConfig.search: 0: {algorithm.frozen}; expected above 0, or updates 0")
        self._folder = folder
        self.driving = folder / "driving.safetensors"
        """Weights that were learnt last."""
        known: dict[str, Any] = {"task": task, "policy": policy.version, "judge": judge.name if judge else "oracle"}
        earlier = open_earlier("PracticeConfig.earlier", self.config.earlier)
        known |= asdict(self.config) | {"earlier": [one.id for one in earlier]}
        kept = self._checked(known | dict(about or {}), asdict(PracticeConfig()) | dict(before or {}))
        self.store = ExperienceStore(folder / "experience", ExperienceStoreConfig(max_mb=self.config.max_mb))
        self._record = PracticeRecord(self.store)
        pace = LearnerConfig(
            updates_per_episode=0 if self.config.search else self.config.updates,  # a search imitates nothing
            first_episodes=self.config.first_successes,
            candidate_updates=self.config.updates,
            imitate_own=True,  # a practice without noise is asked for by its settings
            seed=self.config.seed,
            replay=ReplayConfig(earlier=self.config.earlier),
        )
        try:
            self.learner = Learner(self.store, trained or policy, algorithm, folder=folder / "training", config=pace)
        except BaseException:
            self.store.close()
            raise
        write_atomic(folder / KEPT, kept)  # what the learner refuses leaves the folder to another practice
        self.episodes = self._read()
        self.corrections: list[MotionCorrection] = []
        """What was found after every ``search`` episodes; no correction where none was surely better."""
        self._search = CorrectionSearch(seed=self._seed_of_search(0))
        if self.learner.metrics["updates"]:
            self._take(self.learner.algorithm.weights(), f"practised-{self.learner.metrics['updates']:07d}")
        elif others and self.config.rehearsed and not (folder / OTHERS).exists():
            here = Runtime(world, policy, pipeline, detector=detector, fresh_memory=fresh_memory)
            runtime = here if elsewhere is None else elsewhere()
            oracle_successes(runtime, others, self.config.rehearsed, folder / OTHERS)
            if runtime is not here:
                runtime.world.close()
        self.rehearsed = self._rehearse()
        """Other tasks that the policy carried out, and whose answers it keeps."""
        controller = pipeline.controller
        record = self._record
        recorder = ExperienceRecorder(controller.kinematics, controller.robot, record.add, record.next)
        # where a correction is tried, it alone differs
        size = 0.0 if self.config.search else self.config.exploration
        noise = ExplorationConfig(size=size, hold_steps=self.config.hold_steps)
        self._explore = Exploration(noise, self.config.seed)
        self.runtime = Runtime(
            world,
            policy,
            pipeline,
            detector=detector,
            fresh_memory=fresh_memory,
            judge=judge,
            explore=self._explore,
            recorder=recorder,
        )
        self._helper: OracleHelper | None = None
        if self.config.help.share:
            if not isinstance(world, MujocoWorld):
                raise InvalidInputError(f"PracticeConfig.help: the expert knows no {type(world).__name__}")
            helped = sum(one.helped for one in self.episodes)
            self._helper = OracleHelper(world, self.config.help, sum(one.steps for one in self.episodes), helped)
            self.runtime.human = self._helper
        self._replay: DemonstrationReplay | None = None
        if demonstrations:
            if detector is None:
                raise InvalidInputError("Practice: demonstrations need a detector and a memory; they are None")
            self._replay = DemonstrationReplay(
                demonstrations,
                lambda: self.runtime.memory.graph().nodes if self.runtime.memory is not None else (),
                lambda: ((outcome := world.oracle_outcome()).episode, outcome.instruction),
                controller.kinematics,
                controller.robot,
                controller.config,
            )
            self.runtime.human = self._replay
        if self.episodes and not self.config.search:
            self._learn()  # from an episode that ended just before a process did
            self._note(replace(self.episodes[-1], updates=self.learner.metrics["updates"]))
        for one in self.episodes if self.config.search else ():
            self._tried(MotionCorrection(one.scale, one.yaw_rad, one.shift_x, one.shift_y), one.outcome)

    def episode(self) -> PracticeEpisode:
        """Run the next episode and learn from it; it is durable when this returns."""
        number, failed = len(self.episodes) + 1, self._failed()
        seed = failed.seed if failed else self.config.first_seed + sum(not one.again for one in self.episodes)
        self._record.begin()
        before = 0
        if self._helper is not None:
            before = self._helper.helped
            self._helper.begin(self.task, seed, again=failed is not None, lost_at=failed.lost_at if failed else 0.0)
        if self._replay is not None:
            self._replay.begin()
        correction = self._explore.correction = self._search.next() if self.config.search else MotionCorrection()
        result = self.runtime.run_episode(self.task, seed, episode=number if failed else None)  # with other noise
        helped = self._helper.helped - before if self._helper is not None else 0
        again, lost_at = failed.number if failed else 0, self._helper.lost_at if self._helper is not None else 0.0
        told = self._record.keep()
        outcome = outcome_of(told, result.verdict.progress if result.verdict is not None else math.nan)
        happened = number, seed, result.steps, told, result.oracle_success, self.learner.metrics["updates"], helped
        replayed = self._replay.steps if self._replay is not None else 0
        done = PracticeEpisode(*happened, **asdict(correction), outcome=outcome, again=again, lost_at=lost_at)
        done = replace(done, replayed=replayed)
        self._note(done)  # before it is learnt from, which takes longer: else it would be practised again
        if self.config.search:
            self._tried(correction, outcome)
        else:
            self._learn()
            done = replace(done, updates=self.learner.metrics["updates"])
            self._note(done)
        return done

    def _failed(self) -> PracticeEpisode | None:
        """Return the episode whose scene is practised next, with help; None: a new scene is.

        It is the newest that failed, by the simulator, and was not practised again yet, if there may be help by now.
        """
        done = {one.again for one in self.episodes}
        left = [one for one in self.episodes if not (one.oracle_success or one.again or one.number in done)]
        repeats = (one for one in reversed(left) if self._helper and self._helper.may_repeat(self.task, one.lost_at))
        return next(repeats, None)

    def _rehearse(self) -> frozenset[str]:
        """Show the learner what the policy did of other tasks; return these."""
        if not (self._folder / OTHERS).exists():
            return frozenset()
        done = ExperienceReader(self._folder / OTHERS)
        self.learner.see(done.episodes())
        return frozenset(info.task for info in done.catalogue())

    def _note(self, done: PracticeEpisode) -> None:
        """Keep what came of an episode, in place of what was kept of it before."""
        self.episodes[done.number - 1 :] = [done]
        lines = [json.dumps(asdict(one)) + "\n" for one in self.episodes]
        write_atomic(self._folder / "episodes.jsonl", "".join(lines).encode())

    def close(self) -> None:
        """Let go of the folder."""
        self.store.close()

    def _tried(self, correction: MotionCorrection, outcome: float) -> None:
        """Take note of a trial. After enough of them the best correction becomes part of the weights, unless that was
        done before this process began, and the next search begins; a search that found none goes on."""
        self._search.tell(correction, outcome)
        if self._search.trials % self.config.search:
            return
        self.corrections.append(found := self._search.best())
        if found == MotionCorrection():
            return
        self._search = CorrectionSearch(seed=self._seed_of_search(len(self.corrections)))
        if sum(one != MotionCorrection() for one in self.corrections) > self.learner.metrics["corrections"]:
            self._drive(self.learner.correct_all(found))

    def _seed_of_search(self, number: int) -> int:
        return self.config.seed * 1_000_003 + number

    def _learn(self) -> None:
        self.learner.poll()
        while self.learner.step() is not None:
            pass
        self._drive(self.learner.candidate())

    def _drive(self, candidate: tuple[bytes, PolicyManifest] | None) -> None:
        """Let what was learnt drive from now on, if there is enough of it."""
        if candidate is not None:
            data, manifest = candidate
            self._take(data, manifest.version)
            self.learner.promoted(manifest.version)
        self.learner.save()

    def _take(self, weights: bytes, version: str) -> None:
        """Let the policy drive with ``weights`` from its next episode on."""
        write_atomic(self.driving, weights)
        self.policy.load_weights(self.driving, version)

    def _checked(self, about: dict[str, Any], before: dict[str, Any]) -> bytes:
        """Return what the folder is to say of what is practised; InvalidInputError if it is another practice's.

        What the folder does not say, as an earlier version did not know it, is as in ``before``.
        """
        path = self._folder / KEPT
        about, before = json.loads(json.dumps([about, before]))
        try:
            found = _completed(dict(json.loads(path.read_text())), before) if path.exists() else about
        except DAMAGED as error:
            raise StoreError(f"{path}: cannot be read: {error}") from error
        if changed := sorted(name for name in about if found.get(name) != about[name]):
            values = ", ".join(f"{name}: {found.get(name)}, not {about[name]}" for name in changed)
            raise InvalidInputError(f"{self._folder} holds another practice ({values}); use another folder")
        return json.dumps(found, indent=1).encode()

    def _read(self) -> list[PracticeEpisode]:
        path = self._folder / "episodes.jsonl"
        try:
            lines = path.read_text().splitlines() if path.exists() else []
            return [PracticeEpisode(**json.loads(line)) for line in lines]
        except DAMAGED as error:
            raise StoreError(f"{path}: cannot be read: {error}") from error


def _completed(found: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return ``found`` with what it lacks of ``before``, in its parts as well."""
    parts = {name: _completed(found[name], one) for name, one in before.items() if _both_parts(found.get(name), one)}
    return before | found | parts


def _both_parts(*values: object) -> bool:
    return all(isinstance(one, dict) for one in values)


def oracle_successes(runtime: Runtime, tasks: Sequence[str], episodes: int, folder: Path) -> None:
    """Store in ``folder`` those of ``episodes`` episodes of each of ``tasks`` that the policy of ``runtime`` did.

    The simulator tells which: nothing is learnt from them but what the policy did already. The folder appears when it
    is whole.
    """
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    store = ExperienceStore(partial)
    record, controller = PracticeRecord(store), runtime.pipeline.controller
    runtime.recorder = ExperienceRecorder(controller.kinematics, controller.robot, record.add, record.next)
    for task in tasks:
        for seed in range(FIRST_REHEARSED_SEED, FIRST_REHEARSED_SEED + episodes):
            record.begin()
            if runtime.run_episode(task, seed).oracle_success:
                record.keep()
    store.close()
    partial.rename(folder)
