import numpy as np
import pytest
import torch

from engram.core.contracts import Policy
from engram.core.errors import InvalidInputError
from engram.core.types import ActionChunk, JointState, Observation
from engram.policies.chunking import RealTimeChunking, TemporalEnsemble
from engram.policies.flow import integrate

STEP_NS = 100_000_000


class Counting(Policy):
    """The n-th chunk says n in every row of its motion, and n in its gripper."""

    def reset(self, instruction, episode=0, seed=0):
        self.asked = 0

    def observe(self, observation, memory=None):
        self.stamp_ns = observation.stamp_ns

    def act(self):
        self.asked += 1
        return ActionChunk(self.stamp_ns, 0, "ee_delta", np.full((3, 7), float(self.asked)), 0.1, 3, self.version)

    def load_weights(self, path, version):
        raise NotImplementedError

    @property
    def version(self):
        return "counting"


def chunks(policy, *steps):
    """Return the chunks that answer these control steps."""
    answers = []
    for step in steps:
        policy.observe(Observation(step * STEP_NS, {}, JointState(step * STEP_NS, ("a",), np.zeros(1), np.zeros(1))))
        answers.append(policy.act())
    return answers


def test_rows_for_the_same_step_are_averaged():
    policy = TemporalEnsemble(Counting(), decay=0.0)
    policy.reset("")
    first, second, third, fourth = chunks(policy, 0, 1, 2, 3)
    assert first.actions[:, 0].tolist() == [1, 1, 1]
    assert second.actions[:, 0].tolist() == [1.5, 1.5, 2]  # the first chunk reaches two rows of the second
    assert third.actions[:, 0].tolist() == [2, 2.5, 3]  # (1 + 2 + 3) / 3, (2 + 3) / 2, 3
    assert fourth.actions[:, 0].tolist() == [3, 3.5, 4]  # the first has run out
    assert [c.execute_steps for c in (first, fourth)] == [1, 1]


def test_the_gripper_is_the_newest_chunk_s_alone():
    policy = TemporalEnsemble(Counting(), decay=0.0)
    policy.reset("")
    assert chunks(policy, 0, 1)[1].actions[:, -1].tolist() == [2, 2, 2]


def test_decay_trusts_the_oldest():
    policy = TemporalEnsemble(Counting(), decay=np.log(3))
    policy.reset("")
    assert chunks(policy, 0, 1)[1].actions[0, 0] == pytest.approx((1 + 2 / 3) / (1 + 1 / 3))


def test_steps_that_were_not_asked_for_count_by_their_time_and_an_episode_begins_anew():
    policy = TemporalEnsemble(Counting(), decay=0.0)
    policy.reset("")
    assert chunks(policy, 0, 2)[1].actions[:, 0].tolist() == [1.5, 2, 2]
    policy.reset("")
    assert chunks(policy, 1)[0].actions[:, 0].tolist() == [1, 1, 1]


def test_a_negative_decay_is_an_error():
    with pytest.raises(InvalidInputError, match="decay: -1"):
        TemporalEnsemble(Counting(), -1)


def grown(left, wanted=1.0, steps=10, delay=2):
    """Return the chunk (8,) that a policy which wants ``wanted`` makes of noise when ``left`` still runs."""
    velocity = lambda x, t: (wanted - x) / (1 - t[..., None, None]).clamp(min=0.05)  # noqa: E731
    guided = RealTimeChunking(delay).guide(velocity, left) if left is not None else velocity
    noise = 0.5 * torch.randn(1, 1, 8, 1, generator=torch.Generator().manual_seed(0))
    return integrate(guided, noise, steps)[0, 0, :, 0]


def test_a_chunk_grows_out_of_the_one_that_runs():
    plain, guided = grown(None), grown(torch.full((1, 6, 1), 0.2))
    torch.testing.assert_close(plain, torch.ones(8))
    away = (guided - 0.2).abs()
    assert (away[:2] < 0.25).all()  # held to the old chunk while the answer is under way
    assert (away[:6].diff() >= -1e-4).all()  # then let go, more and more
    torch.testing.assert_close(guided[6:], torch.ones(2))  # the old chunk says nothing of these


def test_no_delay_needs_no_real_time_chunking():
    with pytest.raises(InvalidInputError, match="delay: 0"):
        RealTimeChunking(0)
