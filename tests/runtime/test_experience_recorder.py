"""Observations, chunks, executed actions and statuses of one episode become its transitions."""

from dataclasses import replace

import numpy as np
import pytest

from engram.core.robot import PANDA_2F85
from engram.core.types import (
    NOBODY,
    UNJUDGED,
    ActionChunk,
    ActionSource,
    EpisodeStatus,
    JointCommand,
    JointState,
    MemoryTokens,
    Observation,
)
from engram.runtime.experience_recorder import ExperienceRecorder, covered_cameras
from engram.sim.robots.kinematics import ModelKinematics
from engram.sim.tasks.memory.touch import SHOW_STEPS
from engram.sim.world import MujocoWorld
from tests.core.frames import camera_frame
from tests.learning.transitions import OWN

STEP_NS = 100_000_000
TEXTURE = np.kron([[0, 90], [90, 0]], np.ones((4, 4), np.uint8)).astype(np.uint8)[:, :, None].repeat(3, 2)
"""An image (8, 8, 3) on which there is something to see."""


@pytest.fixture(scope="module")
def kinematics():
    return ModelKinematics(PANDA_2F85)


class Episode:
    """Feeds a recorder with steps of one episode; proposed row i is filled with i / 10."""

    def __init__(self, kinematics):
        self.out = []
        self.recorder = ExperienceRecorder(kinematics, PANDA_2F85, self.out.append, lambda: len(self.out) + 1)

    def status(self, step, state="running", episode=1, reward=0.0):
        success, truncated = state == "succeeded", state == "failed"
        return EpisodeStatus(step * STEP_NS, "r", episode, "reach", "go", step, state, success, reward, truncated)

    def observe(self, step, episode=1, state="running", textured=False, read=None):
        stamp = step * STEP_NS
        joints = JointState(stamp, PANDA_2F85.joint_names, np.append(PANDA_2F85.home, 0.0), np.zeros(8))
        frame = camera_frame(stamp, shade=step)
        if textured:
            frame = replace(frame, color=TEXTURE)
        observation = Observation(stamp, {"front": frame}, joints)
        self.recorder.observed(observation, self.status(step, state, episode), "go", read)

    def chunk(self, step, episode=1):
        rows = np.tile(np.arange(4)[:, None] / 10, (1, 7))
        self.recorder.chunk(ActionChunk(step * STEP_NS, episode, "ee_delta", rows, 0.1, 3, "v1", ("m",)), OWN)

    def execute(self, step, value, author="v1", episode=1):
        row = np.full((1, 7), value)
        self.recorder.executed(ActionChunk(step * STEP_NS, episode, "ee_delta", row, 0.1, 1, author))


def test_two_steps_by_hand(kinematics):
    episode = Episode(kinematics)
    episode.observe(0)
    episode.chunk(0)
    episode.execute(0, 0.0)
    episode.observe(1)
    episode.execute(1, -0.5, "human:ann")
    episode.recorder.became(episode.status(2, "succeeded", reward=1.0))
    first, last = episode.out
    assert (first.step, first.episode, first.reward, first.terminated) == (0, 1, 0.0, False)
    assert (last.step, last.reward, last.terminated, last.success, last.truncated) == (1, 1.0, True, True, False)
    assert [(t.author, t.intervention, t.person) for t in (first, last)] == [
        ("v1", False, ""), ("human:ann", True, "ann"),
    ]  # fmt: skip
    np.testing.assert_allclose(last.action, 0.1, rtol=1e-6)  # row 1 was proposed
    np.testing.assert_allclose(last.executed_action, -0.5)  # the human's was executed
    assert (last.policy_version, last.memory_ids, last.images["front"].max()) == ("v1", ("m",), 1)


def test_the_chunk_that_answers_a_step_proposes_for_it_and_a_late_one_does_not(kinematics):
    episode = Episode(kinematics)
    for step in range(3):
        episode.observe(step)
        if step == 0:
            episode.chunk(0)
    episode.observe(3)  # the old chunk has a row for it, that nobody will execute
    episode.chunk(3)
    episode.observe(4)
    for step in range(4):
        episode.execute(step, 0.0)
    episode.execute(4, 0.1)
    episode.chunk(4)  # too late: step 4 was executed by the row of the chunk before
    episode.recorder.became(episode.status(5))
    np.testing.assert_allclose([t.action[0] for t in episode.out], [0.0, 0.1, 0.2, 0.0, 0.1], rtol=1e-6)


@pytest.mark.parametrize(("every", "planned"), [(3, [0, 0, 0, 3, 3]), (1, [0, 1, 2, 3, 4])])
def test_a_step_tells_at_which_step_its_action_was_planned(kinematics, every, planned):
    """So a policy that plans anew at every step is told apart from one that executes three actions of a plan."""
    episode = Episode(kinematics)
    for step in range(5):
        episode.observe(step)
        if step % every == 0:
            episode.chunk(step)
        episode.execute(step, 0.0)
    episode.recorder.became(episode.status(5))
    assert [t.chunk_ns // STEP_NS for t in episode.out] == planned


def test_a_step_tells_why_the_robot_held(kinematics):
    episode = Episode(kinematics)
    episode.observe(0)
    episode.execute(0, 0.0, "hold:no_command")
    episode.observe(1, state="held")
    episode.chunk(1)
    episode.execute(1, 0.3)
    episode.observe(2)
    episode.execute(2, 0.0)
    episode.recorder.became(episode.status(3))
    assert [(t.held, t.person, t.chunk_ns // STEP_NS) for t in episode.out] == [
        ("no_command", "", 0), ("cell", "", 1), ("", "", 1),
    ]  # fmt: skip


def test_a_step_waits_for_what_was_executed_whatever_the_order(kinematics):
    episode = Episode(kinematics)
    episode.observe(0)
    episode.observe(1)
    episode.chunk(0)
    assert episode.out == []
    episode.execute(0, 0.0)
    assert [t.step for t in episode.out] == [0]


def test_executed_and_status_may_come_before_the_pictures(kinematics):
    episode = Episode(kinematics)
    episode.observe(0)
    episode.chunk(0)
    episode.execute(0, 0.0)
    episode.recorder.became(episode.status(1, reward=0.25))
    episode.execute(1, 0.5)
    episode.recorder.became(episode.status(2, "succeeded", reward=1.0))
    episode.observe(1)
    assert [(t.step, t.reward, t.terminated) for t in episode.out] == [(0, 0.25, False), (1, 1.0, True)]
    np.testing.assert_allclose(episode.out[1].action, 0.1, rtol=1e-6)


def test_truncation_is_not_termination(kinematics):
    episode = Episode(kinematics)
    episode.observe(0)
    episode.chunk(0)
    episode.execute(0, 0.0)
    episode.recorder.became(episode.status(1, "failed"))
    assert (episode.out[0].terminated, episode.out[0].truncated, episode.out[0].success) == (False, True, False)


def test_an_episode_that_was_broken_off_ends_truncated_and_the_next_is_numbered_anew(kinematics):
    episode = Episode(kinematics)
    for step in (0, 1):
        episode.observe(step)
        episode.chunk(step)
        episode.execute(step, 0.0)
    episode.observe(7, episode=2)
    assert [(t.step, t.truncated) for t in episode.out] == [(0, False), (1, True)]
    episode.chunk(7, episode=2)
    episode.execute(7, 0.0, episode=2)
    episode.recorder.became(episode.status(8, "succeeded", episode=2))
    assert (episode.out[-1].episode, episode.out[-1].step) == (3, 0)  # named by its first sequence number


@pytest.mark.parametrize("first", ["executed", "status", "observed"])
def test_when_the_simulation_is_restarted_the_same_episode_number_is_another_episode(kinematics, first):
    """Whatever of the new clock comes first, the step that waited ends its episode, truncated, and nothing mixes."""
    episode = Episode(kinematics)
    for step in (200, 201):
        episode.observe(step)
        episode.chunk(step)
        episode.execute(step, 0.0)
    calls = {"executed": lambda: episode.execute(0, 0.5), "status": lambda: episode.recorder.became(episode.status(0))}
    if first in calls:
        calls.pop(first)()
    episode.observe(0)
    for late in calls.values():
        late()
    episode.recorder.became(episode.status(1, "succeeded", reward=1.0))
    assert [(t.episode, t.step, t.truncated, t.terminated) for t in episode.out] == [
        (1, 0, False, False), (1, 1, True, False), (3, 0, False, True),
    ]  # fmt: skip


def test_a_row_of_long_before_breaks_no_episode_off(kinematics):
    """As a recording tells it: a demonstration that begins in mid-motion would be learnt for a whole one."""
    episode = Episode(kinematics)
    for step in range(100, 104):
        episode.observe(step)
        episode.chunk(step)
        episode.execute(step, step / 1000)
        episode.execute(step - 50, 0.9, "human:ann")
    episode.recorder.became(episode.status(104, "succeeded", reward=1.0))
    assert [(t.episode, t.step, t.success) for t in episode.out] == [(1, s, s == 3) for s in range(4)]
    assert not any(t.truncated or t.intervention for t in episode.out)
    np.testing.assert_allclose([t.executed_action[0] for t in episode.out], [0.1, 0.101, 0.102, 0.103], rtol=1e-6)


def test_a_row_of_long_before_is_none_of_the_clock_that_begins_anew(kinematics):
    episode = Episode(kinematics)
    for step in (200, 201):
        episode.observe(step)
        episode.execute(step, 0.0)
    episode.execute(150, 0.9)  # of neither clock
    episode.execute(0, 0.5)
    episode.observe(0)
    episode.observe(150, episode=2)
    episode.execute(150, 0.1, episode=2)
    episode.recorder.became(episode.status(151, "succeeded", episode=2))
    assert [(t.episode, t.truncated, round(float(t.executed_action[0]), 1)) for t in episode.out] == [
        (1, False, 0.0), (1, True, 0.0), (3, True, 0.5), (4, False, 0.1),
    ]  # fmt: skip


def test_what_a_held_arm_was_told_was_not_executed_but_for_the_gripper(kinematics):
    episode = Episode(kinematics)
    episode.observe(0, state="held")
    episode.chunk(0)
    episode.execute(0, 0.3)
    episode.observe(1)
    episode.execute(1, 0.3)
    episode.recorder.became(episode.status(2, "succeeded", reward=1.0))
    held, free = episode.out
    np.testing.assert_allclose(held.executed_action, [0, 0, 0, 0, 0, 0, 0.3], rtol=1e-6)
    np.testing.assert_allclose(free.executed_action, 0.3, rtol=1e-6)


def test_a_step_says_whose_action_it_holds_and_which_cameras_saw_nothing(kinematics):
    episode = Episode(kinematics)
    episode.observe(0, textured=True)
    episode.execute(0, 0.5, "human:ann")
    episode.observe(1, textured=True)  # the person was quicker than the policy
    episode.chunk(1)
    episode.execute(1, 0.0)
    episode.observe(2)
    episode.execute(2, 0.0)
    episode.recorder.became(episode.status(3, "succeeded", reward=1.0))
    assert [one.source for one in episode.out] == [
        ActionSource(NOBODY),
        OWN,
        replace(OWN, covered_cameras=("front",)),
    ]


def test_cameras_with_a_cap_on_are_told_from_those_that_see():
    world = MujocoWorld()
    observation = world.reset("touch_unseen", seed=0)
    told = [covered_cameras(observation)]
    for _ in range(SHOW_STEPS + 1):
        joints = observation.joints
        observation = world.step(JointCommand(joints.stamp_ns, joints.names, joints.positions, 0.1))
        told.append(covered_cameras(observation))
    world.close()
    assert told == [()] * SHOW_STEPS + [("front", "wrist")] * 2


def test_a_robots_goal_that_was_judged_done_is_a_success_with_its_reward(kinematics):
    episode = Episode(kinematics)

    def told(step, state):
        return EpisodeStatus(step * STEP_NS, "r", 1, "", "put the cube in the bin", step, state)

    episode.observe(0)
    episode.recorder._words = ("", "put the cube in the bin")
    episode.chunk(0)
    episode.execute(0, 0.0)
    episode.recorder.became(told(1, "succeeded"))
    (last,) = episode.out
    assert (last.success, last.terminated, last.truncated) == (True, True, False)
    assert (last.reward, last.reward_source) == (1.0, "verdict")


@pytest.mark.parametrize(("state", "judged"), [("stopped", False), ("failed", True), ("succeeded", True)])
def test_a_goal_that_was_called_off_is_told_as_judged_by_nobody(kinematics, state, judged):
    episode = Episode(kinematics)
    episode.observe(0)
    episode.chunk(0)
    episode.execute(0, 0.0)
    episode.recorder.became(EpisodeStatus(STEP_NS, "r", 1, "", "put the cube in the bin", 1, state))
    (last,) = episode.out
    assert (last.reward_source != UNJUDGED) == judged
    assert (last.terminated, last.truncated) == (judged, not judged)


@pytest.mark.parametrize("clock", [1, 2])
def test_a_clock_that_ticks_with_the_observations_does_not_hide_how_a_goal_ended(kinematics, clock):
    episode = Episode(kinematics)
    for step in range(3):  # the goal's end is told at the time of the newest observation, or of the one before
        episode.observe(step)
        episode.chunk(step)
        if step < 2:
            episode.execute(step, 0.0)
    episode.recorder.became(EpisodeStatus(clock * STEP_NS, "r", 1, "", "put the cube in the bin", 3, "succeeded"))
    episode.execute(2, 0.0)
    episode.observe(5, episode=2)
    assert [(one.step, one.success, one.truncated) for one in episode.out] == [
        (0, False, False), (1, False, False), (2, True, False),
    ]  # fmt: skip


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_message_costs_its_step_and_not_the_episode(kinematics, lost):
    episode, missed = Episode(kinematics), []
    episode.recorder = ExperienceRecorder(
        kinematics, PANDA_2F85, episode.out.append, lambda: len(episode.out) + 1, lambda: missed.append(1)
    )
    for step in range(3):
        episode.observe(step)
        episode.chunk(step)
        if step != lost:
            episode.execute(step, step / 10)
        elif step == 0:  # of an episode that the safety node had not heard of yet
            episode.execute(step, 0.9, episode=0)
    episode.recorder.became(episode.status(3, "succeeded", reward=1.0))
    assert [round(float(one.executed_action[0]), 1) for one in episode.out] == [s / 10 for s in range(3) if s != lost]
    assert [(one.step, one.success) for one in episode.out] == [(0, False), (1, True)]
    assert missed == [1]


def test_a_step_keeps_what_the_policy_read_of_memory_without_its_padding(kinematics):
    episode, mask = Episode(kinematics), np.array([True, True, False])
    for step in range(2):
        rows = np.full((3, 4), step, np.float32)
        read = MemoryTokens(step * STEP_NS, 7, rows, np.zeros(3), np.zeros((3, 3)), mask, ("a", "b", ""))
        episode.observe(step, read=read)
        episode.execute(step, 0.0)
    nothing = MemoryTokens(2 * STEP_NS, 7, np.zeros((1, 4)), np.zeros(1), np.zeros((1, 3)), np.zeros(1, bool), ("",))
    episode.observe(2, read=nothing)
    episode.execute(2, 0.0)
    episode.recorder.became(episode.status(3, "succeeded"))
    first, second, last = (t.context for t in episode.out)
    assert (first.version, first.source_ids, first.tokens.tolist()) == (7, ("a", "b"), [[0.0] * 4] * 2)
    assert second.tokens.tolist() == [[1.0] * 4] * 2 and last is None
