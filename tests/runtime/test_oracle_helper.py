"""The expert that stands for a person: when it takes over, how much, and that the policy is asked anew after it."""

from __future__ import annotations

import numpy as np
import pytest

from engram.core.contracts import Policy
from engram.core.errors import InvalidInputError
from engram.core.types import ActionChunk
from engram.runtime.loop import Runtime
from engram.runtime.oracle_helper import HelpConfig, OracleHelper
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


@pytest.mark.parametrize("wrong", [{"share": 1.1}, {"patience": -0.1}, {"noise": float("nan")}])
def test_a_help_that_cannot_be_is_named(wrong):
    (name,) = wrong
    with pytest.raises(InvalidInputError, match=f"HelpConfig.{name}: "):
        HelpConfig(**wrong)
