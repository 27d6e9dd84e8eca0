"""When the policy observes, acts and swaps weights, step by step."""

import numpy as np

from engram.core.errors import WeightsError
from engram.core.types import JointState, Observation
from engram.nodes.policy_runner import PolicyRunner, PolicyStep
from tests.sim.test_runtime import GoRight

STEP_NS = 100_000_000


class Loadable(GoRight):
    """GoRight whose weights are its version."""

    weights = "v0"

    def load_weights(self, path, version):
        if version == "bad":
            raise WeightsError("weights 'bad': too small")
        self.weights = version

    @property
    def version(self):
        return self.weights


def step(index, episode=1, words="go", halted=False):
    joints = JointState(index * STEP_NS, ("a",), np.zeros(1), np.zeros(1))
    return PolicyStep(Observation(index * STEP_NS, {}, joints), episode, words, halted=halted)


def test_every_step_is_observed_and_a_chunk_comes_when_its_rows_are_used_up():
    runner = PolicyRunner(Loadable())  # 3 of 4 rows are executed
    due = [runner.step(step(i)) is not None for i in range(8)]
    assert due == [True, False, False, True, False, False, True, False]
    assert len(runner.policy.seen) == 8


def test_a_repeated_step_gives_no_second_chunk():
    runner = PolicyRunner(Loadable())
    assert runner.step(step(0)) is not None
    assert runner.step(step(0)) is None


def test_a_new_episode_other_words_or_time_going_back_begin_anew():
    runner = PolicyRunner(Loadable())
    runner.step(step(5))
    assert runner.step(step(6, episode=2)).episode == 2
    assert runner.step(step(7, episode=2, words="stop")) is not None
    assert runner.step(step(1, episode=2, words="stop")) is not None


def test_weights_are_swapped_only_between_chunks():
    runner = PolicyRunner(Loadable())
    runner.step(step(0))
    runner.offer_weights("w", "v1")
    runner.step(step(1))
    assert runner.policy.version == "v0"
    runner.step(step(3))
    assert runner.policy.version == "v1"


def test_refused_weights_are_reported_and_the_old_ones_go_on():
    refused = []
    runner = PolicyRunner(Loadable(), refused.append)
    runner.offer_weights("w", "bad")
    assert runner.step(step(0)) is not None
    assert (runner.policy.version, str(refused[0])) == ("v0", "weights 'bad': too small")
    assert runner.step(step(3)) is not None
    assert len(refused) == 1


def test_a_halted_task_stands_still_and_keeps_the_gripper():
    chunk = PolicyRunner(Loadable()).step(step(0, halted=True))
    assert chunk.policy_version == "standstill"
    np.testing.assert_array_equal(chunk.actions, np.tile([0, 0, 0, 0, 0, 0, -1.0], (4, 1)))
