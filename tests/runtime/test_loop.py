"""The in-process loop in a world small enough to follow by hand."""

from dataclasses import replace

import numpy as np
import pytest

from engram.core.contracts import Detector, FeaturePolicy, Memory, MemoryAnswer, Policy, World
from engram.core.errors import InvalidInputError, unknown_name
from engram.core.pipeline import CommandPipeline
from engram.core.questions import FindObject
from engram.core.types import (
    ActionChunk,
    Features,
    GraphUpdate,
    HumanAction,
    JointCommand,
    JointState,
    MemoryTokens,
    Observation,
    OracleOutcome,
    Verdict,
)
from engram.learning.rewards.contract import RewardSource
from engram.learning.rewards.success_classifier import (
    ClassifierConfig,
    ClassifierVerdict,
    LabelledEpisode,
    SuccessClassifier,
)
from engram.memory.robot_memory import RobotMemory
from engram.runtime.loop import Runtime
from tests.contracts.world import WorldContract
from tests.core.frames import camera_frame
from tests.core.gantry import GANTRY, GantryKinematics
from tests.memory.scenes import WordEncoder, seen, view

MAX_STEPS = 12


class GantryWorld(World):
    """The gantry goes exactly where it is told; success is x >= 0.08 m."""

    def __init__(self) -> None:
        self.stamp_ns = 0
        self.position = np.zeros(4)
        self.episode = self.steps = self.seed = 0
        self.instruction = ""

    def reset(self, task: str, seed: int, instruction: str = "") -> Observation:
        if task != "reach":
            raise unknown_name("task", task, ["reach"])
        self.instruction = instruction or "go right"
        self.position, self.steps, self.seed = np.zeros(4), 0, seed
        self.episode += 1
        return self._observe()

    def step(self, command: JointCommand) -> Observation:
        self.position = np.array(command.positions)
        self.steps += 1
        return self._observe()

    def _observe(self) -> Observation:
        self.stamp_ns += 100_000_000
        state = JointState(self.stamp_ns, GANTRY.joint_names, self.position, np.zeros(4))
        return Observation(self.stamp_ns, {"front": camera_frame(self.stamp_ns, shade=self.seed)}, state)

    def oracle_outcome(self) -> OracleOutcome:
        success = bool(self.position[0] >= 0.08)
        over = self.steps >= MAX_STEPS and not success
        return OracleOutcome("reach", self.instruction, self.episode, self.steps, success, float(success), over)

    def close(self) -> None:
        pass


class GoRight(Policy):
    """Moves along x by ``speed`` a step, three rows a chunk, and remembers what it was shown."""

    def __init__(self, speed: float = 0.4) -> None:
        self.speed = speed
        self.seen: list[int] = []
        self.chunks = 0

    def reset(self, instruction, episode=0, seed=0):
        self.instruction, self.episode = instruction, episode

    def observe(self, observation, memory=None):
        if observation.stamp_ns not in self.seen:
            self.seen.append(observation.stamp_ns)

    def act(self):
        self.chunks += 1
        actions = np.tile([self.speed, 0, 0, 0, 0, 0, -1.0], (4, 1))
        return ActionChunk(self.seen[-1], self.episode, "ee_delta", actions, 0.1, 3, "v0")

    def load_weights(self, path, version):
        raise NotImplementedError("this policy has no weights")

    @property
    def version(self):
        return "v0"


class TestGantryWorld(WorldContract):
    def make(self):
        return GantryWorld()


def pipeline() -> CommandPipeline:
    return CommandPipeline(GantryKinematics(), GANTRY)


def test_an_episode_by_hand():
    policy = GoRight(speed=0.4)  # 0.4 x 0.05 m a step: 0.08 m after 4 steps, so 2 chunks of 3 rows
    result = Runtime(GantryWorld(), policy, pipeline()).run_episode("reach", seed=7)
    assert (result.oracle_success, result.steps, result.instruction) == (True, 4, "go right")
    np.testing.assert_allclose(result.commands[:, 0], [0.02, 0.04, 0.06, 0.08])
    assert policy.chunks == 2
    assert len(policy.seen) == 4  # every step is observed, not only those that answer with a chunk


def test_a_policy_that_does_not_move_is_truncated():
    result = Runtime(GantryWorld(), GoRight(speed=0.0), pipeline()).run_episode("reach", seed=0)
    assert (result.oracle_success, result.steps) == (False, MAX_STEPS)


def test_a_stopped_robot_holds_and_asks_for_no_chunks():
    policy, stopped = GoRight(), pipeline()
    stopped.filter.stop("test")
    result = Runtime(GantryWorld(), policy, stopped).run_episode("reach", seed=0)
    assert not result.oracle_success
    assert policy.chunks == 0
    np.testing.assert_array_equal(result.commands, np.zeros((MAX_STEPS, 4)))


def human(
    observation: Observation, x: float, who: str = "ann", space: str = "ee_delta", *, active: bool = True
) -> HumanAction:
    row = [x, 0, 0, 0, 0, 0, -1.0] if space == "ee_delta" else [x, 0, 0, 0]
    return HumanAction(observation.stamp_ns, who, active, space, np.array(row))


def test_a_human_drives_the_steps_that_he_takes_and_the_policy_goes_on_from_there():
    """Steps 0 and 1 are the policy's (0.02 m each), 2 and 3 a human's (-0.01 m each), the rest the policy's again."""
    steps: list[int] = []

    def ann(observation):
        steps.append(len(steps))
        return human(observation, -0.2, active=steps[-1] in (2, 3))

    policy = GoRight(speed=0.4)
    result = Runtime(GantryWorld(), policy, pipeline(), human=ann).run_episode("reach", seed=7)
    np.testing.assert_allclose(result.commands[:, 0], [0.02, 0.04, 0.03, 0.02, 0.04, 0.06, 0.08])
    assert policy.chunks == 3  # asked at step 0, at 3, after ann drove, and at 4, where the policy drives again


def test_after_a_human_the_policy_drives_by_what_it_plans_then_not_by_what_it_had_planned():
    """Its chunks tell when they were planned: 0.1 a chunk more. Ann stands still at steps 1 and 2 of a chunk of 16."""
    steps: list[int] = []

    def ann(observation):
        steps.append(len(steps))
        return human(observation, 0.0, active=steps[-1] in (1, 2))

    class EverFaster(GoRight):
        def act(self):
            self.chunks += 1
            rows = np.tile([0.1 * self.chunks, 0, 0, 0, 0, 0, -1.0], (16, 1))
            return ActionChunk(self.seen[-1], self.episode, "ee_delta", rows, 0.1, 16, "v")

    result = Runtime(GantryWorld(), EverFaster(), pipeline(), human=ann).run_episode("reach", seed=7)
    moved = np.diff(result.commands[:6, 0], prepend=0.0)
    np.testing.assert_allclose(moved, [0.005, 0.0, 0.0, 0.015, 0.015, 0.015])


def test_a_human_may_say_where_the_joints_shall_be():
    world = GantryWorld()
    runtime = Runtime(world, GoRight(), pipeline(), human=lambda seen: human(seen, 0.03, space="joint_position"))
    assert runtime.run_episode("reach", seed=7).commands[0].tolist() == [0.03, 0, 0, 0]


def test_perception_without_memory_is_refused():
    with pytest.raises(InvalidInputError, match="detector and memory come together"):
        Runtime(GantryWorld(), GoRight(), pipeline(), detector=object())


class SameView(Detector):
    """Sees a red cup at one place, whatever the frame."""

    def detect(self, frame):
        return view([seen("red cup", (0.5, 0.1, 0.02))], frame.stamp_ns)


class GoRightAndSay(GoRight):
    """Names in each chunk what it had read."""

    def observe(self, observation, memory=None):
        super().observe(observation, memory)
        self.read = tuple(np.array(memory.source_ids)[memory.mask].tolist())

    def act(self):
        return replace(super().act(), memory_ids=self.read)


def test_the_memory_sees_how_the_episode_ended():
    """Four steps make five observations, 0.1 s apart: the last one shows what the last command did."""
    memory = RobotMemory(encoder=WordEncoder())
    Runtime(GantryWorld(), GoRight(), pipeline(), detector=SameView(), memory=memory).run_episode("reach", seed=7)
    (cup,) = memory.query(FindObject("red cup")).nodes
    assert (cup.observations, cup.last_seen_ns) == (5, 500_000_000)


def test_a_memory_of_tasks_gets_every_episode_and_what_was_read_for_it():
    memory = RobotMemory(encoder=WordEncoder())
    runtime = Runtime(GantryWorld(), GoRightAndSay(), pipeline(), detector=SameView(), memory=memory)
    runtime.run_episode("reach", seed=7)
    runtime.run_episode("reach", seed=8)
    memory.commit()
    memory.query(FindObject("red cup"))  # waits for the threads
    first, second = memory.episodic.episodes
    assert (first.outcome, first.return_, first.policy_version) == ("succeeded", 1.0, "v0")
    assert first.memory_ids == second.memory_ids == ("object_0001",)
    assert [(one.policy_version, one.n) for one in memory.semantic.skills()] == [("v0", 2)]


class Scenes(Memory):
    """A memory of one's own, as small as the contract allows: the last scene alone, no tasks."""

    def __init__(self):
        self.stamps = []

    def update(self, scene):
        self.stamps.append(scene.stamp_ns)
        return self.graph()

    def query(self, query):
        return MemoryAnswer((), ())

    def context(self, instruction, stamp_ns):
        nothing = np.zeros((1, 384)), np.zeros(1), np.zeros((1, 3)), np.zeros(1, bool)
        return MemoryTokens(stamp_ns, 0, *nothing, ("",))

    def graph(self, at_ns=None):
        return GraphUpdate(0, len(self.stamps), True, ())

    def commit(self):
        return 0


def test_five_methods_make_a_memory_that_the_loop_takes():
    memory = Scenes()
    result = Runtime(GantryWorld(), GoRight(), pipeline(), detector=SameView(), memory=memory).run_episode("reach", 7)
    assert result.oracle_success
    assert memory.stamps == [100_000_000 * step for step in range(1, 6)]  # four steps and what came of the last one


class FarEnough(RewardSource):
    """Confirms when it was asked often enough; what is true it does not know."""

    name = "count"

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def begin(self, instruction):
        self.asked = 0

    def judge(self, moment):
        self.asked += 1
        done = self.asked >= self.looks
        return Verdict(
            moment.stamp_ns, moment.episode, "count", "confirmed" if done else "denied", 0.9 if done else 0.1
        )


@pytest.mark.parametrize(
    ("looks", "speed", "steps", "truth"),
    [(3, 0.4, 5, True), (6, 0.4, 8, True), (1, 0.2, 3, False), (99, 0.0, MAX_STEPS, False)],
)
def test_with_a_judge_an_episode_ends_when_that_is_certain_whatever_the_simulator_says(looks, speed, steps, truth):
    """The simulator's success comes after 4 steps at speed 0.4; three confirmations in a row end the episode,
    after the step that is under way."""
    memory, world = RobotMemory(encoder=WordEncoder()), GantryWorld()
    judge = FarEnough(looks)
    runtime = Runtime(world, GoRight(speed), pipeline(), detector=SameView(), memory=memory, judge=judge)
    result = runtime.run_episode("reach", seed=7)
    judged = looks < 99
    assert (result.steps, result.judged_success, result.oracle_success) == (steps, judged, truth)
    memory.commit()
    memory.query(FindObject("red cup"))  # waits for the threads
    (episode,) = memory.episodic.episodes
    assert episode.outcome == ("succeeded" if judged else "failed")  # the memory learns the judge's verdict


class Far(GoRight, FeaturePolicy):
    """Its only feature is how many steps it has observed."""

    def reset(self, instruction, episode=0, seed=0):
        super().reset(instruction, episode, seed)
        self.seen.clear()

    def features(self):
        return Features("eyes", np.array([len(self.seen)], np.float32))


def test_a_classifier_ends_an_episode_by_what_the_policy_makes_of_it():
    def goal(success):
        way = np.arange(1, 13 if success else 9, dtype=np.float32)[:, None]
        return LabelledEpisode("reach for the cup", way, success)

    config = ClassifierConfig(members=2, width=16, updates=300)
    learnt = SuccessClassifier.fit("eyes", [goal(True), goal(False)] * 4, config)
    judge = ClassifierVerdict([learnt])
    ended = {}
    for words in ("reach for the cup", "dance"):
        runtime = Runtime(
            GantryWorld(), Far(0.0), pipeline(), detector=SameView(), fresh_memory=RobotMemory, judge=judge
        )
        result = runtime.run_episode("reach", 7, words)
        ended[words] = result.judged_success, result.oracle_success, result.steps
    assert ended["dance"] == (False, False, MAX_STEPS)
    success, truth, steps = ended["reach for the cup"]
    assert (success, truth) == (True, False) and steps >= 9


def test_a_judge_without_a_memory_is_refused():
    with pytest.raises(InvalidInputError, match="a judge needs a detector and a memory"):
        Runtime(GantryWorld(), GoRight(), pipeline(), judge=FarEnough(1))
