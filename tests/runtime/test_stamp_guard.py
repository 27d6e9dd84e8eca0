"""What is stamped far from now reaches no memory, and later messages are none the worse for it."""

from __future__ import annotations

import time

from engram.runtime.stamp_guard import AHEAD_NS, BEHIND_NS, StampGuard
from tests.runtime.test_memory_feed import Fed

SECOND = 10**9


class Guarded(Fed):
    """A feed whose clock says ``now_ns``."""

    def __init__(self, now_ns, **config):
        super().__init__(**config)
        self.now_ns = now_ns
        self.feed._guard = StampGuard(lambda: self.now_ns)


def test_both_bounds_are_the_last_that_are_taken():
    guard = StampGuard(lambda: 100 * SECOND)
    assert not guard.refuses(100 * SECOND + AHEAD_NS) and not guard.refuses(100 * SECOND - BEHIND_NS)
    assert guard.refuses(100 * SECOND + AHEAD_NS + 1).startswith("stamped 5.0 s ahead")
    assert guard.refuses(100 * SECOND - BEHIND_NS - 1).startswith("stamped 60.0 s before")
    assert not StampGuard().refuses(10**18)


def test_a_camera_that_is_ahead_of_the_wall_clock_makes_no_other_one_late():
    now_ns = time.time_ns()
    fed = Guarded(now_ns)
    for step in range(20):
        fed.now_ns = now_ns + step * SECOND // 10
        fed.see(fed.now_ns + 2 * SECOND, camera="ahead")
        fed.see(fed.now_ns)
    (cube,) = fed.objects()
    assert cube.observations == 20 and cube.last_seen_ns == fed.now_ns
    assert "stamped 2.0 s ahead of the clock; synchronise the machines" in fed.notes.problems["scene stamp"]


def test_a_late_stamp_is_refused_unless_the_clock_itself_went_back():
    guard = StampGuard(lambda: 100 * SECOND)
    assert "the clock did not go back" in guard.refuses(90 * SECOND, newest_ns=100 * SECOND)
    assert not guard.refuses(99 * SECOND, newest_ns=100 * SECOND)
    assert not guard.refuses(90 * SECOND, newest_ns=500 * SECOND)  # a simulation that was restarted


def test_scenes_and_statuses_of_another_time_leave_nothing_in_the_memory():
    fed = Guarded(100 * SECOND)
    fed.see(100 * SECOND)
    before = fed.memory.graph()
    for stamp_ns in (10**18, 110 * SECOND, 0, 90 * SECOND):
        fed.see(stamp_ns, camera="another")
    fed.tell(10**18, "find the cube")
    after = fed.memory.graph()
    assert (after.stamp_ns, after.sequence, len(after.nodes)) == (before.stamp_ns, before.sequence, len(before.nodes))
    assert fed.notes.counts["scene stamps refused"] == 4
    assert "ahead of the clock" in fed.notes.problems["status stamp"]
    fed.tell(0, "find the cube")  # the last status may be old
    assert fed.notes.counts["status stamps refused"] == 1
    fed.now_ns = 101 * SECOND
    fed.tell(101 * SECOND, "find the cube")
    fed.see(101 * SECOND)
    assert fed.contexts[-1].stamp_ns == 101 * SECOND
    assert [node.last_seen_ns for node in fed.objects()] == [101 * SECOND]


def test_a_robot_is_not_introduced_by_a_frame_that_is_refused():
    """The memory itself refuses the first frames of a clock that began anew; its newest stamp stays what it is."""
    fed = Guarded(1000 * SECOND)
    fed.see(1000 * SECOND)
    fed.now_ns = 2 * SECOND
    fed.see(2 * SECOND, camera="another")
    assert fed.notes.counts["scenes refused"] == 1
    assert fed.memory.graph().stamp_ns == 1000 * SECOND
    for second in (3, 4, 5):
        fed.see(second * SECOND, camera="another")
    assert fed.memory.graph().stamp_ns == 5 * SECOND
