"""The simulation's thread with the gantry: lock-step by stamp, retries, resets, free running."""

import queue
import threading
from dataclasses import replace

import numpy as np
import pytest

from engram.core.contracts import ViewableWorld
from engram.core.errors import UnknownNameError
from engram.core.types import JointCommand
from engram.runtime.sim_loop import SimLoop, SimLoopConfig
from tests.runtime.test_loop import MAX_STEPS, GantryWorld


class Watched:
    """A loop whose steps, problems and counters are collected."""

    def __init__(self, make=GantryWorld, show_idle=lambda _: None, **config):
        self.shown, self.rest, self.problems, self.counts = queue.Queue(), queue.Queue(), queue.Queue(), []
        self.loop = SimLoop(
            make,
            lambda observation, outcome, again: self.shown.put((observation, outcome, again)),
            self.rest.put,
            lambda key, text: text and self.problems.put((key, text)),
            self.counts.append,
            SimLoopConfig(**config),
            show_idle,
        )

    def next(self):
        return self.shown.get(timeout=60)

    def answer(self, observation, x):
        joints = observation.joints
        self.loop.command(JointCommand(joints.stamp_ns, joints.names, np.array([x, 0, 0, 0]), 0.1))


@pytest.fixture
def watch():
    made = []

    def make(*args, **config):
        made.append(Watched(*args, **config))
        return made[-1]

    yield make
    for one in made:
        one.loop.stop()


@pytest.mark.parametrize("lockstep", [True, False])
def test_the_rest_of_every_step_is_shown_once_also_of_the_last(watch, lockstep):
    sim = watch(lockstep=lockstep, control_dt_s=0.01, retry_s=60.0)
    sim.loop.reset("reach", 1, "")
    stamps, over = [], False
    while not over:
        observation, outcome, _ = sim.next()
        stamps.append(observation.stamp_ns)
        over = outcome.over
        sim.answer(observation, 0.0)
    assert len(stamps) == MAX_STEPS + 1
    assert [sim.rest.get(timeout=60).stamp_ns for _ in stamps] == stamps
    assert sim.rest.empty()


def test_lockstep_takes_only_the_command_with_the_steps_own_stamp(watch):
    sim = watch(retry_s=60.0)
    outcome = sim.loop.reset("reach", 1, "").result(20)
    assert (outcome.step, outcome.instruction) == (0, "go right")
    first, _, again = sim.next()
    assert not again
    wrong = JointCommand(first.stamp_ns - 1, first.joints.names, np.full(4, 0.5), 0.1)
    sim.loop.command(wrong)
    sim.answer(first, 0.03)
    second, outcome, _ = sim.next()
    assert second.joints.positions[0] == 0.03
    assert outcome.step == 1


def test_success_ends_the_episode_and_the_next_reset_begins_another(watch):
    sim = watch(retry_s=60.0)
    sim.loop.reset("reach", 1, "").result(20)
    first, before, _ = sim.next()
    sim.answer(first, 0.09)
    _, outcome, _ = sim.next()
    assert outcome.success
    after = sim.loop.reset("reach", 2, "go on").result(20)
    assert (after.episode, after.instruction) == (before.episode + 1, "go on")


def test_a_reset_while_it_waits_for_a_command_does_not_deadlock(watch):
    sim = watch(retry_s=60.0)
    sim.loop.reset("reach", 1, "").result(20)
    sim.next()
    assert sim.loop.reset("reach", 2, "").result(20).step == 0


def test_without_a_command_the_step_is_shown_again_and_reported(watch):
    sim = watch(retry_s=0.05, command_timeout_s=0.1)
    sim.loop.reset("reach", 1, "").result(20)
    first, _, _ = sim.next()
    repeated, _, again = sim.next()
    assert again
    assert repeated.stamp_ns == first.stamp_ns
    key, text = sim.problems.get(timeout=60)
    assert key == "command"
    assert "none for step 0 of episode 2" in text  # as task/status counts: the gantry itself begins with 1


def test_an_unknown_task_is_an_error_and_the_loop_goes_on(watch):
    sim = watch(retry_s=60.0)
    with pytest.raises(UnknownNameError, match="unknown task 'dance'; valid: reach"):
        sim.loop.reset("dance", 0, "").result(20)
    assert sim.loop.reset("reach", 0, "").result(20).step == 0


def test_free_running_goes_on_without_commands_and_counts_them(watch):
    sim = watch(lockstep=False, control_dt_s=0.01)
    sim.loop.reset("reach", 1, "").result(20)
    steps = [sim.next() for _ in range(MAX_STEPS + 1)]
    assert steps[-1][1].truncated
    assert sim.counts.count("steps without command") == MAX_STEPS


def test_free_running_servos_keep_what_they_were_told_where_no_command_comes(watch):
    """Where the arm is measured is not where it was sent: a servo lags."""
    given = []

    class Lagging(GantryWorld):
        def step(self, command):
            given.append(command.positions[0])
            return super().step(replace(command, positions=0.5 * command.positions))

    sim = watch(Lagging, lockstep=False, control_dt_s=0.01)
    sim.loop.reset("reach", 1, "").result(20)
    first, *_ = sim.next()
    sim.answer(first, 0.04)
    while not sim.next()[1].over:
        pass
    told = given.index(0.04)
    assert set(given[told:]) == {0.04} and len(given) > told + 5
    assert all(0.0 <= one < 0.04 for one in given[:told])  # before, it stays where it is


def test_a_world_that_cannot_be_made_says_so(watch):
    def broken():
        raise RuntimeError("no EGL")

    with pytest.raises(RuntimeError, match="no EGL"):
        watch(broken).loop.wait_ready()


def test_the_world_lives_in_one_thread(watch):
    threads = set()

    class Noted(GantryWorld):
        def reset(self, *args):
            threads.add(threading.current_thread().name)
            return super().reset(*args)

        def step(self, command):
            threads.add(threading.current_thread().name)
            return super().step(command)

    sim = watch(Noted, retry_s=60.0)
    sim.loop.reset("reach", 1, "").result(20)
    sim.answer(sim.next()[0], 0.09)
    sim.next()
    assert threads == {"sim"}


class Watchable(GantryWorld, ViewableWorld):
    """A gantry that can be watched at rest."""

    def rest(self, duration_s):
        self.stamp_ns += round(duration_s * 1e9) - 100_000_000
        return self._observe()

    def robot_description(self):
        return "<robot/>"

    def link_poses(self, *, moving):
        return {}


def test_a_world_at_rest_is_shown_before_the_first_and_after_the_last_episode(watch):
    idle = queue.Queue()
    sim = watch(Watchable, show_idle=idle.put, rest_period_s=0.02, retry_s=60.0)
    first, second = idle.get(timeout=60), idle.get(timeout=20)
    assert second.stamp_ns - first.stamp_ns == 20_000_000  # the clock goes on as it does on the wall
    sim.loop.reset("reach", 1, "").result(20)
    start, _, _ = sim.next()
    assert start.stamp_ns > second.stamp_ns
    while not idle.empty():
        idle.get()
    assert idle.empty()  # no rest within an episode
    sim.answer(start, 0.09)
    assert sim.next()[1].success
    assert idle.get(timeout=60).joints.positions[0] == 0.09
