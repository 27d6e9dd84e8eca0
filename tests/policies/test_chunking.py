import numpy as np
import pytest
import torch

from engram.core.contracts import Policy
from engram.core.control import ChunkExecutor
from engram.core.errors import InvalidInputError
from engram.core.types import ActionChunk, JointState, Observation
from engram.policies.vla.chunking import AdaptiveChunks, TemporalEnsemble, follow
from engram.policies.vla.flow import integrate
from engram.policies.vla.real_time_chunking import RealTimeChunking
from engram.policies.vla.vla_policy import VlaPolicy
from tests.policies.test_vla_policy import make_policy, observe

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
    return integrate([guided] * steps, noise)[0, 0, :, 0]


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


SCALE_M = 0.05


class Homing(Policy):
    """Leads the tool home to 0 along one axis, at most 0.4 x 5 cm a step, from where it sees it."""

    def reset(self, instruction, episode=0, seed=0):
        self.asked = 0

    def observe(self, observation, memory=None):
        self.stamp_ns, self.place = observation.stamp_ns, observation.joints.positions[0]

    def act(self):
        self.asked += 1
        actions, place = np.zeros((8, 7)), self.place
        for row in actions:
            row[0] = np.clip(-place / SCALE_M, -0.4, 0.4)
            place += row[0] * SCALE_M
        return ActionChunk(self.stamp_ns, 0, "ee_delta", actions, 0.1, 6, self.version)

    def load_weights(self, path, version):
        raise NotImplementedError

    @property
    def version(self):
        return "homing"


def driven(policy, pushes=None, steps=18, place=0.3):
    """Return the motions (steps,) [action units] that are executed in lock-step; ``pushes`` is step -> metres."""
    executor, executed = ChunkExecutor(lockstep=True), []
    policy.reset("")
    for step in range(steps):
        place += (pushes or {}).get(step, 0.0)
        joints = JointState(step * STEP_NS, ("a",), np.array([place]), np.zeros(1))
        policy.observe(Observation(step * STEP_NS, {}, joints))
        action = executor.action(step * STEP_NS)
        if action is None:
            executor.accept(policy.act())
            action = executor.action(step * STEP_NS)
        executed.append(action[0])
        place += action[0] * SCALE_M
    return np.array(executed)


def test_adaptive_chunks_leave_an_undisturbed_episode_as_it_is():
    fixed, adaptive = Homing(), AdaptiveChunks(Homing(), 0.02)
    np.testing.assert_array_equal(driven(adaptive), driven(fixed))
    assert (adaptive.cut, fixed.asked, adaptive.policy.asked) == (0, 3, 18)


def test_a_push_in_mid_chunk_is_answered_in_the_same_control_period():
    pushed = {14: 0.08}  # home is reached at step 15; the chunk of step 12 stands still from there on
    adaptive = AdaptiveChunks(Homing(), 0.02)
    np.testing.assert_allclose(driven(Homing(), pushed)[14:], [-0.4, 0, 0, 0])  # blind until step 18
    np.testing.assert_allclose(driven(adaptive, pushed)[14:], [-0.4, -0.4, -0.4, -0.4])
    assert adaptive.cut == 1


def test_a_push_too_small_to_matter_waits_for_the_next_chunk():
    adaptive = AdaptiveChunks(Homing(), 0.02)
    np.testing.assert_allclose(driven(adaptive, {14: 0.01})[14:], [-0.4, 0, 0, 0])
    assert adaptive.cut == 0


def test_what_is_left_of_a_chunk_is_filled_up_from_the_newest():
    policy = AdaptiveChunks(Counting(), 1.0)  # its chunks are of 3 rows, 5 cm apart a row and chunk
    policy.reset("")
    first, second, third, fourth = chunks(policy, 0, 1, 2, 3)
    assert [c.actions[:, 0].tolist() for c in (first, second, third, fourth)] == [
        [1, 1, 1], [1, 1, 2], [1, 3, 3], [4, 4, 4]  # executed to its end, then the next
    ]  # fmt: skip
    assert [c.execute_steps for c in (first, second, third, fourth)] == [1, 1, 1, 1]


def test_ways_that_exclude_each_other_are_named():
    with pytest.raises(InvalidInputError, match="departure_m: 0"):
        AdaptiveChunks(Counting(), 0.0)
    with pytest.raises(InvalidInputError, match="not kept by ensemble"):
        follow(Counting(), ensemble=True, adaptive_m=0.02)
    with pytest.raises(InvalidInputError, match="not kept by real_time_delay"):
        follow(Counting(), real_time_delay=2, adaptive_m=0.02)
    assert isinstance(follow(Counting(), adaptive_m=0.02), AdaptiveChunks)
    assert isinstance(follow(Counting()), Counting)


def test_a_policy_leaves_its_chunks_as_its_own_configuration_says_unless_told_otherwise():
    used_to = make_policy(adaptive_m=0.04)
    own = follow(used_to)
    assert isinstance(own, AdaptiveChunks) and own.departure_m == 0.04
    told = follow(used_to, adaptive_m=0.02)
    assert isinstance(told, AdaptiveChunks) and told.departure_m == 0.02
    assert follow(used_to, adaptive_m=0.0) is used_to
    assert isinstance(follow(used_to, ensemble=True), TemporalEnsemble)
    assert follow(used_to, real_time_delay=2) is used_to
    assert follow(make_policy()).__class__ is VlaPolicy
    with pytest.raises(InvalidInputError, match=r"adaptive_m: -0.1, expected 0\.\.1 m"):
        make_policy(adaptive_m=-0.1)


def test_asking_a_network_at_every_step_does_not_change_what_it_decides_when_a_chunk_is_due():
    plain, adaptive, due = make_policy(), AdaptiveChunks(make_policy(), 1e9), 0
    for policy in (plain, adaptive):
        policy.reset("go", seed=3)
    for step in range(10):
        for policy in (plain, adaptive):
            policy.observe(observe(step * STEP_NS))
        if step == due:
            chunk = plain.act()
            due += chunk.execute_steps
        row = step - due + chunk.execute_steps
        np.testing.assert_array_equal(adaptive.act().actions[0], chunk.actions[row])


@pytest.mark.parametrize("around", [lambda policy: AdaptiveChunks(policy, 1e9), TemporalEnsemble])
def test_who_takes_up_an_episode_goes_on_with_the_chunks_that_counted(around):
    whole, before, after = (around(make_policy(memory="bank")) for _ in range(3))
    for policy in (whole, before, after):
        policy.reset("go", episode=7, seed=3)
    assert not before.memory_state()
    for step in range(8):
        one = before if step < 4 else after  # in mid-chunk
        if step == 4:
            after.restore_memory(before.memory_state())
        found = []
        for policy in (whole, one):
            policy.observe(observe(step * STEP_NS))
            found.append(policy.act())
        np.testing.assert_array_equal(found[1].actions, found[0].actions)
        assert (found[1].episode, found[1].dt_s, found[1].space) == (found[0].episode, found[0].dt_s, found[0].space)
