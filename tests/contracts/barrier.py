"""The laws that every MotionBarrier keeps."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from engram.core.collision import Obstacle
from engram.core.contracts import MotionBarrier


def at_once(asked: np.ndarray) -> list[np.ndarray]:
    """Joints that are where they are asked to be after one step, and at rest there."""
    return [asked]


class MotionBarrierContract:
    """Subclass as ``TestX`` and say how to make one; positions are (n,) joint units."""

    @abstractmethod
    def make(self) -> MotionBarrier:
        """Return a fresh barrier; always the same one."""

    @abstractmethod
    def free(self) -> tuple[np.ndarray, np.ndarray]:
        """Return start and goal of a step that is near nothing."""

    @abstractmethod
    def blocked(self) -> tuple[np.ndarray, np.ndarray]:
        """Return start and goal of a step that ends in something."""

    @abstractmethod
    def obstacle(self) -> Obstacle:
        """Return a box that the step of :meth:`free` goes into."""

    def test_a_free_goal_comes_back_itself(self):
        start, goal = self.free()
        barrier = self.make()
        assert barrier.limit(start, goal, at_once) is goal
        assert barrier.nearest == ""

    def test_a_blocked_goal_becomes_one_that_is_free(self):
        start, goal = self.blocked()
        barrier = self.make()
        safe = barrier.limit(start, goal, at_once)
        assert safe is not None and not np.array_equal(safe, goal)
        assert "/" in barrier.nearest
        assert barrier.limit(start, safe, at_once) is safe

    def test_what_was_reached_can_be_left(self):
        start, goal = self.blocked()
        barrier = self.make()
        safe = barrier.limit(start, goal, at_once)
        assert safe is not None
        back = safe + 0.5 * (start - safe)
        assert barrier.limit(safe, back, at_once) is back

    def test_from_inside_the_way_out_is_free_and_the_way_on_is_not(self):
        start, goal = self.blocked()
        barrier = self.make()
        out, on = goal + 0.2 * (start - goal), goal + 0.2 * (goal - start)
        assert barrier.limit(goal, out, at_once) is out
        assert barrier.limit(goal, on, at_once) is not on

    def test_no_way_is_none(self):
        start, goal = self.blocked()
        assert self.make().limit(start, goal, lambda asked: [goal]) is None

    def test_the_way_counts_and_not_the_goal_alone(self):
        start, inside = self.blocked()
        barrier = self.make()
        assert barrier.limit(start, start.copy(), lambda asked: [asked, inside]) is None

    def test_obstacles_come_and_go(self):
        start, goal = self.free()
        barrier = self.make()
        barrier.set_obstacles([self.obstacle()])
        assert barrier.limit(start, goal, at_once) is not goal
        assert self.obstacle().name in barrier.nearest
        barrier.set_obstacles([])
        assert barrier.limit(start, goal, at_once) is goal

    def test_the_same_question_gets_the_same_answer_bit_for_bit(self):
        start, goal = self.blocked()
        first, second = self.make(), self.make()
        first.limit(*self.free(), at_once)  # no memory of earlier questions
        np.testing.assert_array_equal(first.limit(start, goal, at_once), second.limit(start, goal, at_once))

    def test_a_question_does_not_change_what_was_given(self):
        start, goal = self.blocked()
        kept = start.copy(), goal.copy()
        self.make().limit(start, goal, at_once)
        np.testing.assert_array_equal((start, goal), kept)
