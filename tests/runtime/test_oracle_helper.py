"""The expert that stands for a person: when it takes over, how much, and that the policy is asked anew after it."""

from __future__ import annotations

import numpy as np
import pytest

from engram.core.contracts import Policy
from engram.core.errors import EngramError
from engram.core.types import ActionChunk
from engram.runtime.loop import Runtime
from engram.runtime.oracle_helper import HelpConfig, Moment, OracleGuide, OracleHelper, Scene
from engram.sim.gap_world import GapWorld, gap_pipeline
from engram.sim.gaps import get_gap


class StandsStill(Policy):
    """Never gets done."""

    version = "still"

    def reset(self, instruction, episode=0, seed=0):
        self.episode = episode

    def observe(self, observation, memory=None):
        self.stamp_ns = observation.stamp_ns

    def act(self):
        return ActionChunk(self.stamp_ns, self.episode, "ee_delta", np.zeros((8, 7)), 0.1, 8, self.version)

    def load_weights(self, path, version):
        raise NotImplementedError


@pytest.fixture(scope="module")
def world():
    made = GapWorld(get_gap("none"))
    yield made
    made.close()


def run(world, helper, episodes):
    runtime = Runtime(world, StandsStill(), gap_pipeline(world), human=helper)
    results = []
    for seed in range(episodes):
        helper.begin("reach", seed)
        results.append(runtime.run_episode("reach", seed))
    return results


def test_it_waits_then_finishes_what_the_policy_does_not(world):
    helper = OracleHelper(world, HelpConfig(share=1.0))
    results = run(world, helper, 3)
    assert all(one.oracle_success for one in results)
    assert helper.steps == sum(one.steps for one in results)
    assert helper.helped == helper.steps - 3 * 16  # it waits for 0.4 of 40 steps


def test_it_never_drives_more_than_its_share_and_begins_nothing_it_might_not_finish(world):
    helper, shares, helped = OracleHelper(world, HelpConfig(share=0.2)), [], []
    for _ in range(8):
        run(world, helper, 1)
        shares.append(helper.helped / helper.steps)
        helped.append(helper.helped)
    assert max(shares) <= 0.2 < 2 * shares[-1]
    assert helped[0] == 0 < helped[-1]
    later = OracleHelper(world, HelpConfig(share=0.2), helper.steps, helper.helped)  # practice that goes on
    run(world, later, 1)
    assert later.steps > helper.steps and later.helped / later.steps <= 0.2


def test_a_clumsy_one_takes_longer(world):
    steady, clumsy = (run(world, OracleHelper(world, HelpConfig(1.0, noise=noise)), 3) for noise in (0.0, 0.6))
    assert sum(one.steps for one in clumsy) > sum(one.steps for one in steady)


class TurnsAsPlanned(StandsStill):
    """Turns the tool a little more in every step since its chunk was planned: what is executed tells its row."""

    def act(self):
        actions = np.zeros((8, 7))
        actions[:, 5] = 0.01 * (1 + np.arange(8))
        return ActionChunk(self.stamp_ns, self.episode, "ee_delta", actions, 0.1, 8, self.version)


class Rows:
    """Stands for a recorder, and keeps who executed what."""

    def __init__(self):
        self.rows = []

    def executed(self, chunk):
        self.rows.append((chunk.policy_version, chunk.actions[0, 5]))

    def observed(self, *_): ...

    chunk = became = observed


@pytest.mark.parametrize("by", ["guide", "return"])
def test_what_the_policy_planned_before_it_was_helped_is_not_executed_any_more(world, by):
    """It would be in the middle of a chunk of eight steps when it is handed the arm back, or at its end."""
    helper = OracleHelper(world, HelpConfig(1.0, by=by, guide_steps=3))
    runtime = Runtime(world, TurnsAsPlanned(), gap_pipeline(world), human=helper, recorder=(kept := Rows()))
    helper.begin("reach", 0, again=True, lost_at=0.7)
    runtime.run_episode("reach", 0)
    by_expert = np.array([who == "human:oracle" for who, _ in kept.rows])
    back = int(np.flatnonzero(by_expert[:-1] & ~by_expert[1:])[0]) + 1
    assert (by_expert[:12].any(), back) == ((False, 12 + 3) if by == "guide" else (True, int(by_expert.sum())))
    rows = [row for _, row in kept.rows[back : back + 8]]
    assert rows == pytest.approx(0.01 * np.arange(1, 9))


def test_a_tool_that_moves_and_makes_no_progress_is_guided_too_and_one_that_gets_on_is_not(world):
    def drove(motion, share=1.0):
        policy = StandsStill()
        policy.act = lambda: ActionChunk(
            policy.stamp_ns, policy.episode, "ee_delta", np.tile(motion, (8, 1)), 0.1, 8, "still"
        )
        helper = OracleHelper(world, HelpConfig(share, by="guide", guide_steps=2))
        helper.begin("reach", 0)
        Runtime(world, policy, gap_pipeline(world), human=helper).run_episode("reach", 0)
        return helper.helped

    up, down = np.zeros((2, 7))
    up[2], down[2] = 0.2, -0.1
    assert drove(up) == drove(np.zeros(7)) == 4  # at 13, 14, 27 and 28 of 40 steps
    assert drove(down) < 4
    assert drove(up, share=0.02) == 0  # a step is more of those until then


def test_who_is_parked_is_not_stuck():
    guide = OracleGuide(HelpConfig(), Scene(limit=60, graded=True))
    wanted = [guide.wanted(Moment(step, 0.0, np.zeros(3), parked=step <= 20)) for step in range(1, 33)]
    assert wanted == [0] * 31 + [12]


def test_where_the_progress_is_not_told_the_tool_alone_tells_who_is_stuck():
    moves, stands = (OracleGuide(HelpConfig(), Scene(limit=60, graded=False)) for _ in range(2))
    assert not any(moves.wanted(Moment(step, 0.0, np.full(3, 0.02 * step), parked=False)) for step in range(1, 40))
    assert [stands.wanted(Moment(step, 0.0, np.zeros(3), parked=False)) for step in range(1, 14)] == [0] * 12 + [12]


def test_a_failure_is_not_led_back_to_where_it_began_at_once(world):
    helper = OracleHelper(world, HelpConfig(1.0, by="return"))
    run(world, helper, 1)
    assert helper.lost_at == 0.0 and not helper.may_repeat("reach", helper.lost_at)
    assert helper.may_repeat("reach", 0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"share": 1.1},
        {"patience": -0.1},
        {"noise": float("nan")},
        {"by": "pray"},
        {"stuck_steps": 0},
        {"guide_steps": 0},
    ],
)
def test_a_help_that_cannot_be_is_named(wrong):
    (name,) = wrong
    with pytest.raises(EngramError, match=f"HelpConfig.{name}"):
        HelpConfig(**wrong)
