"""The whole loop in one process without ROS: world -> perception -> memory -> policy -> safety -> world.

Evaluation and tests run this. The nodes make the same library calls over topics, and a test checks that both give the
same commands, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from engram.core.contracts import Detector, FeaturePolicy, Memory, Policy, StepHook, World
from engram.core.control import hand
from engram.core.errors import InvalidInputError
from engram.core.pipeline import CommandPipeline
from engram.core.types import (
    CameraFrame,
    EpisodeResult,
    EpisodeStatus,
    GraphUpdate,
    Hand,
    HumanAction,
    JointCommand,
    MemoryTokens,
    Observation,
    OracleOutcome,
    SceneObservation,
    Verdict,
)
from engram.learning.exploration import Exploration
from engram.learning.rewards.contract import RewardSource
from engram.runtime.episode_judge import EpisodeJudge, VerdictHold
from engram.runtime.episode_status import episode_status
from engram.runtime.experience_recorder import ExperienceRecorder
from engram.runtime.policy_runner import source_of

HumanSource = Callable[[Observation], HumanAction | None]
"""Returns what a person does at a control step; None = the policy drives."""


class Runtime:
    """Runs episodes of a policy in a world, with perception and memory when they are given."""

    def __init__(
        self,
        world: World,
        policy: Policy,
        pipeline: CommandPipeline,
        *,
        detector: Detector | None = None,
        memory: Memory | None = None,
        fresh_memory: Callable[[], Memory] | None = None,
        perception_camera: str = "",
        human: HumanSource | None = None,
        judge: RewardSource | None = None,
        explore: Exploration | None = None,
        recorder: ExperienceRecorder | None = None,
    ) -> None:
        """With ``fresh_memory`` each episode begins with an empty memory; otherwise ``memory`` is kept across episodes.

        ``perception_camera`` is by default the one that the robot's configuration names. With ``judge``, which
        needs a memory, an episode ends as a goal on a robot does: when the judge is certain of success, or by its time
        limit; what the simulator says ends nothing. ``explore`` adds noise to the policy's chunks. ``recorder`` is
        told of every step, as the policy node tells its own.
        """
        if (detector is None) != (memory is None and fresh_memory is None):
            raise InvalidInputError("Runtime: detector and memory come together; one of them is None")
        if judge is not None and detector is None:
            raise InvalidInputError("Runtime: a judge needs a detector and a memory; they are None")
        self.world = world
        self.policy = policy
        self.pipeline = pipeline
        self.detector = detector
        self.memory = memory
        self.fresh_memory = fresh_memory
        self.perception_camera = perception_camera or pipeline.controller.robot.perception_camera
        self.human = human
        self.explore, self.recorder = explore, recorder
        self._source = judge
        self._judge: EpisodeJudge | None = None
        self._verdict: Verdict | None = None  # newest
        self._certain = False  # of success, by the judge
        self._read: dict[str, None] = {}  # memories that the episode's actions carried, in order

    def run_episode(
        self,
        task: str,
        seed: int,
        instruction: str = "",
        *,
        episode: int | None = None,
        on_step: StepHook | None = None,
    ) -> EpisodeResult:
        """Run one episode to its end.

        Args:
            task: a task name; the world raises UnknownNameError with the valid ones.
            seed: of the scene.
            instruction: spoken to the policy; empty = the one the task draws from the seed.
            episode: seeds the policy's sampling noise; by default the scene's seed.
            on_step: called after each step with what was seen, commanded, and what came of it.
        """
        episode = seed if episode is None else episode
        if self.explore is not None:
            self.explore.begin(episode)
        observation = self.world.reset(task, seed, instruction)
        outcome = self.world.oracle_outcome()
        self._begin()
        self.policy.reset(outcome.instruction, episode=episode, seed=episode)
        if self.fresh_memory is not None:
            self.memory = self.fresh_memory()
        if self.memory is not None:
            robot = self.pipeline.controller.robot.embodiment((f"{self.perception_camera} camera",))
            self.memory.introduce("robot0", robot, observation.stamp_ns)
            self.memory.begin_episode(task, outcome.instruction, observation.stamp_ns)
            if self._source is not None:
                self._judge = EpisodeJudge(self.memory, self._source)
        commands: list[np.ndarray] = []
        while not self._over(outcome):
            command = self._decide(observation, outcome)
            commands.append(command.positions)
            seen, observation = observation, self.world.step(command)
            outcome = self.world.oracle_outcome()
            if on_step is not None:
                on_step(seen, command, outcome)
        self._look(observation, outcome)  # shows the outcome: a released cube lies in the bin only now
        if self.recorder is not None:
            self.recorder.became(self._status(observation, outcome, over=True))
        if self.memory is not None:
            done = outcome.success if self._judge is None else self._certain
            ended, stamp_ns = "succeeded" if done else "failed", observation.stamp_ns
            self.memory.end_episode(task, ended, stamp_ns, tuple(self._read), self.policy.version)
        executed = np.array(commands).reshape(len(commands), len(observation.joints.names))
        return EpisodeResult(
            task, seed, outcome.instruction, outcome.success, len(commands), executed, self._verdict, self._certain
        )

    def _begin(self) -> None:
        """Forget what was under way in the episode before."""
        self.pipeline.reset()
        self._read.clear()
        self._hold, self._verdict, self._certain = VerdictHold(), None, False

    def _over(self, outcome: OracleOutcome) -> bool:
        return outcome.over if self._judge is None else self._certain or outcome.truncated

    def _decide(self, observation: Observation, outcome: OracleOutcome) -> JointCommand:
        offered = self._look(observation, outcome)
        status = self._status(observation, outcome, over=False)
        if self.recorder is not None:
            read = offered if self.policy.reads_context else None
            self.recorder.observed(observation, status, outcome.instruction, read)
        chunk = None
        if self.pipeline.chunk_due(observation.stamp_ns):  # while a human drives too: the policy goes on from there
            chunk = self.policy.act()
            if self.explore is not None:
                chunk = self.explore.apply(chunk)
            if self.recorder is not None:
                source = source_of(self.policy)
                source = source if self.explore is None else self.explore.mark(source)
                self.recorder.chunk(replace(chunk, episode=status.episode), source)
            self._read.update(dict.fromkeys(chunk.memory_ids))
        human = self.human(observation) if self.human is not None else None
        decision = self.pipeline.step(observation.joints, chunk, human)
        # A chunk that does not cover its own observation leaves nothing to execute: hold.
        decision = decision or self.pipeline.hold(observation.joints)
        if self.recorder is not None:
            self.recorder.executed(decision.as_chunk(status.episode))
        return decision.command

    def _status(self, observation: Observation, outcome: OracleOutcome, *, over: bool) -> EpisodeStatus:
        """Return what is told of this step: the simulator's verdict, or with a judge, as on a robot, what it says."""
        status = episode_status(observation, outcome, "robot0")
        if self._judge is None:
            return status
        state = "running" if not over else "succeeded" if self._certain else "failed"
        return replace(status, task="", state=state, oracle_success=False, oracle_reward=0.0)

    def _look(self, observation: Observation, outcome: OracleOutcome) -> MemoryTokens | None:
        """Let memory and policy observe, and judge what is seen; return what the memory offers the policy."""
        over = self._over(outcome)
        if self.detector is None or self.memory is None:
            if not over:
                self.policy.observe(observation)
            return None
        controller = self.pipeline.controller
        held = hand(observation.joints, controller.kinematics, controller.robot)
        frame = observation.camera(self.perception_camera)
        tokens, update = remember(self.detector, self.memory, frame, held, outcome.instruction)
        features = self._source is not None and self._source.reads_features
        if not over or features:
            self.policy.observe(observation, tokens)
        if self._judge is not None:
            seen = self.policy.features() if features and isinstance(self.policy, FeaturePolicy) else None
            self._verdict = self._judge.judge(outcome.episode, outcome.instruction, update, held, seen)
            self._certain |= self._hold.take(self._verdict)
        return tokens


def remember(
    detector: Detector, memory: Memory, frame: CameraFrame, held: Hand, instruction: str
) -> tuple[MemoryTokens, GraphUpdate]:
    """Update ``memory`` with one frame; return its context tokens for ``instruction``, and what changed."""
    seen = detector.detect(frame)
    if not isinstance(seen, SceneObservation):
        name, given = type(detector).__name__, type(seen).__name__
        raise InvalidInputError(f"detector {name}: detect() returned a {given}, expected a SceneObservation")
    update = memory.update(replace(seen, hand=held))
    return memory.context(instruction, frame.stamp_ns), update
