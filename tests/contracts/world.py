"""The laws that every World keeps, simulated or real."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import pytest

from engram.core.contracts import World
from engram.core.errors import UnknownNameError
from engram.core.types import JointCommand, Observation


def hold(observation: Observation, duration_s: float = 0.1) -> JointCommand:
    """Return the command to stay where the robot is."""
    joints = observation.joints
    return JointCommand(joints.stamp_ns, joints.names, joints.positions, duration_s)


class WorldContract:
    """Subclass as ``TestX`` and say how to make one and which task to run."""

    task = "reach"

    @abstractmethod
    def make(self) -> World:
        """Return a fresh world."""

    @pytest.fixture
    def world(self):
        world = self.make()
        yield world
        world.close()

    def test_time_goes_on_by_one_control_period_even_over_a_reset(self, world):
        first = world.reset(self.task, 0)
        second = world.step(hold(first))
        assert second.stamp_ns - first.stamp_ns == 100_000_000
        assert all(frame.stamp_ns == second.stamp_ns for frame in second.cameras.values())
        assert second.joints.stamp_ns == second.stamp_ns
        assert world.reset(self.task, 0).stamp_ns > second.stamp_ns

    def test_the_same_seed_gives_the_same_world_bit_for_bit(self, world):
        other = self.make()
        for seed in (3, 4):
            a, b = world.reset(self.task, seed), other.reset(self.task, seed)
            for _ in range(3):
                np.testing.assert_array_equal(a.joints.positions, b.joints.positions)
                for name in a.cameras:
                    np.testing.assert_array_equal(a.cameras[name].color, b.cameras[name].color)
                a, b = world.step(hold(a)), other.step(hold(b))
            assert world.oracle_outcome().instruction == other.oracle_outcome().instruction
        other.close()

    def test_another_seed_gives_another_world(self, world):
        world.reset(self.task, 0)
        first = world.step(hold(world.reset(self.task, 0)))
        second = world.step(hold(world.reset(self.task, 1)))
        assert any((first.cameras[n].color != second.cameras[n].color).any() for n in first.cameras)

    def test_outcome_counts_the_steps_and_a_reset_begins_a_new_episode(self, world):
        observation = world.reset(self.task, 0)
        before = world.oracle_outcome()
        assert (before.step, before.success, before.task) == (0, False, self.task)
        world.step(hold(observation))
        assert world.oracle_outcome().step == 1
        world.reset(self.task, 0)
        assert world.oracle_outcome().step == 0
        assert world.oracle_outcome().episode == before.episode + 1

    def test_an_unknown_task_is_named_with_the_valid_ones(self, world):
        with pytest.raises(UnknownNameError, match=rf"unknown task 'dance'.*{self.task}"):
            world.reset("dance", 0)

    def test_close_may_be_called_twice(self, world):
        world.close()
        world.close()
