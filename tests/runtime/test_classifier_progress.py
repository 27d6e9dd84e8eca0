"""How near a goal came by the word of a success classifier, where the memory cannot tell: what is tried next."""

import math
from functools import partial

import numpy as np
import pytest
from scipy.stats import spearmanr

from engram.core.contracts import FeaturePolicy
from engram.core.types import CANNOT_TELL, DENIED, EpisodeStatus, Features, Verdict
from engram.learning.rewards.believed import MemoryFirst
from engram.learning.rewards.contract import Moment, RewardSource
from engram.learning.rewards.success_classifier import (
    ClassifierConfig,
    ClassifierVerdict,
    LabelledEpisode,
    SuccessClassifier,
)
from engram.memory.robot_memory import RobotMemory
from engram.runtime.correction_keeper import FILE, CorrectionKeeper, read
from engram.runtime.goal_book import GoalBook, GoalBookConfig
from engram.runtime.goal_rules import GoalRequest, GoalRules, SimulatedTasks
from engram.runtime.practice import Practice
from tests.memory.scenes import WordEncoder
from tests.runtime.test_loop import SameView, pipeline
from tests.runtime.test_practice import SEARCH, Learning, Textured

WORDS, SECOND = "go right", 10**9


class Lost(RewardSource):
    """A memory that can tell nothing of the goal."""

    name = "memory"

    def begin(self, instruction):
        pass

    def judge(self, moment):
        return Verdict(moment.stamp_ns, moment.episode, self.name, CANNOT_TELL, math.nan, math.nan, "no relation")


class Sees(Learning, FeaturePolicy):
    """Makes of an observation how far the gantry has come [m]."""

    def observe(self, observation, memory=None):
        super().observe(observation, memory)
        self.come = float(observation.joints.positions[0])

    def features(self):
        return Features("eyes", np.array([self.come], np.float32))


@pytest.fixture(scope="module")
def learnt():
    def goal(success):
        return LabelledEpisode(
            WORDS, np.linspace(0.0, 0.1 if success else 0.06, 24, dtype=np.float32)[:, None], success
        )

    config = ClassifierConfig(members=1, width=16, updates=300)
    return SuccessClassifier.fit("eyes", [goal(True), goal(False)] * 4, config)


def test_a_search_takes_the_correction_that_comes_nearer_for_the_better_one(tmp_path, learnt):
    world, judge = Textured(), MemoryFirst((Lost(), ClassifierVerdict([learnt])))
    one = Practice(
        world,
        pipeline(),
        Sees(speed=0.05),
        "reach",
        tmp_path,
        SEARCH,
        judge=judge,
        detector=SameView(),
        fresh_memory=partial(RobotMemory, encoder=WordEncoder()),
    )
    done = [(one.episode(), float(world.position[0])) for _ in range(10)]
    one.close()
    missed = [(episode.outcome, come) for episode, come in done if not episode.success]
    assert len(missed) > 4 and all(outcome < 0.5 and (outcome > 0.0) == (come > 0.0) for outcome, come in missed)
    assert spearmanr(*zip(*missed, strict=True)).statistic > 0.9


@pytest.mark.parametrize("come", [0.02, 0.05])
def test_on_a_robot_a_goal_that_ran_out_of_time_counts_by_the_progress_of_the_classifier(tmp_path, learnt, come):
    keeper, now, told = CorrectionKeeper(tmp_path, "search", 20), [0], list[EpisodeStatus]()
    book = GoalBook(
        GoalBookConfig("robot0", True, timeout_s=1.0, status_timeout_s=30.0),
        GoalRules(False, SimulatedTasks()),
        lambda: now[0],
        lambda: now[0],
        told.append,
        keeper.tell,
    )
    goal, plan = book.accept(GoalRequest(WORDS), 0.0, None, lambda _: None)
    keeper.begin(plan.episode, WORDS, "v0")
    book.join(goal, plan.episode)
    now[0] = SECOND // 2
    classifier = ClassifierVerdict([learnt])
    classifier.begin(WORDS)
    moment = Moment(now[0], plan.episode, features=Features("eyes", np.array([come], np.float32)))
    verdict = classifier.judge(moment)
    for one in (verdict, Lost().judge(moment)):
        book.on_verdict(one)
    assert (goal.verdict, verdict.outcome) == (verdict, DENIED)  # its progress is what the goal's client is told
    now[0] = 2 * SECOND
    book.check_limits(cancelled=False)
    (known,) = read(tmp_path / FILE).values()
    assert known.recent == [pytest.approx(0.5 * verdict.progress)]
    assert verdict.progress == pytest.approx(come / 0.1, abs=0.15)
