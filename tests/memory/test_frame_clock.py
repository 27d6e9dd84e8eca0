"""A wrong stamp ages nothing that is remembered and leaves nothing behind; a simulation may still be restarted."""

from __future__ import annotations

import time

import pytest

from engram.core.clock_trust import ClockTrust
from engram.memory import RobotMemory
from engram.memory.graph.frame_clock import AHEAD_NS, FrameClock
from tests.memory.scenes import WordEncoder, seen, view

SECOND = 10**9
YEAR = 365 * 24 * 3600 * SECOND
HERE, THERE = (0.5, 0.1, 0.02), (0.5, -0.3, 0.02)


def see(memory, stamp_ns, place=HERE, label="red cup"):
    return memory.update(view([seen(label, place)], stamp_ns))


def told(clock, newest_ns, *stamps):
    """Return for each of ``stamps`` whether it is taken, and at the end where the clock began anew."""
    verdicts = [clock.judge(newest_ns, stamp) for stamp in stamps]
    return [not one.refused for one in verdicts], verdicts[-1].began_ns


@pytest.mark.parametrize("start", ["wall clock", "simulation"])
def test_one_frame_of_the_far_future_leaves_nothing_durable(tmp_path, start):
    """12.3 years ahead: the frame is refused by name, and all stamps stay what they were."""
    now = time.time_ns() if start == "wall clock" else 100 * SECOND
    with RobotMemory.open(tmp_path, encoder=WordEncoder()) as memory:
        for k in range(4):
            see(memory, now + k * SECOND // 10)
        before = [(n.id, n.first_seen_ns, n.last_seen_ns) for n in memory.graph().nodes]
        update = see(memory, time.time_ns() + int(12.3 * YEAR), THERE, "green bowl")
        assert "ahead of this machine's clock" in update.refused and not update.nodes
        assert memory.graph().stamp_ns == now + 3 * SECOND // 10
        assert [(n.id, n.first_seen_ns, n.last_seen_ns) for n in memory.graph().nodes] == before
        update = see(memory, now + SECOND // 2)
        assert not update.refused and update.shifted_ns == 0
    with RobotMemory.open(tmp_path, read_only=True, encoder=WordEncoder()) as memory:
        objects = [node for node in memory.graph().nodes if node.layer == "object"]
        assert [(node.label, node.first_seen_ns) for node in objects] == [("red cup", now)]


def test_on_the_wall_clock_no_old_frame_moves_the_past():
    memory = RobotMemory(encoder=WordEncoder())
    now = time.time_ns()
    for k in range(4):
        see(memory, now + k)
    for k in range(10):
        update = see(memory, now - 5 * SECOND + k * SECOND // 10)
        assert "5.0 s before the newest" in update.refused or k
        assert update.refused and update.shifted_ns == 0
    update = see(memory, 3 * SECOND)
    assert "a simulation needs a store of its own" in update.refused
    assert [node.first_seen_ns for node in memory.graph().nodes if node.layer == "object"] == [now]
    memory.close()


def test_when_the_clock_of_the_machine_is_set_back_what_is_known_moves_before_its_new_beginning(monkeypatch):
    """A machine that ran a year ahead: its memory would refuse every frame for a year."""
    memory = RobotMemory(encoder=WordEncoder())
    now = time.time_ns()
    with monkeypatch.context() as ahead:
        ahead.setattr(memory.tracker._clock, "_now_ns", lambda: now + YEAR)
        for k in range(4):
            see(memory, now + YEAR + k * SECOND)
    told = [see(memory, now + k * SECOND) for k in range(4)]
    assert [bool(update.refused) for update in told] == [True, True, False, False]
    assert [update.shifted_ns for update in told] == [0, 0, -YEAR - 4 * SECOND, 0]
    (cup,) = [node for node in memory.graph().nodes if node.layer == "object"]
    assert (cup.first_seen_ns, cup.last_seen_ns) == (now - 4 * SECOND, now + 3 * SECOND)
    memory.close()


@pytest.mark.parametrize("believed", ["", "synchronized", "later"])
def test_a_clock_that_may_not_be_set_yet_moves_nothing_that_is_remembered(believed):
    """A machine without a battery starts 40 minutes, or 26 years, behind what its memory has."""
    now, passed = 2 * 10**18, [0.0]
    trust = ClockTrust(lambda: now, lambda: believed == "synchronized", lambda: passed[0])
    clock, newest = FrameClock(lambda: now, trust), now + 2400 * SECOND
    passed[0] = 601.0 if believed == "later" else 30.0
    taken, began_ns = told(clock, newest, now, now + SECOND // 10, now + SECOND // 5)
    assert (taken, began_ns) == (([False, False, True], now) if believed else ([False] * 3, None))
    if not believed:
        assert "may not be set yet, as nobody synchronizes it (NTP)" in clock.judge(newest, now).refused
        assert not clock.judge(newest, newest + SECOND).refused  # NTP has set it


def test_in_a_simulation_one_old_frame_moves_nothing_and_three_in_a_row_do():
    memory = RobotMemory(encoder=WordEncoder())
    for second in range(100, 104):
        see(memory, second * SECOND)
    for second in (50, 104, 51, 105, 52, 106):  # a camera that is late
        assert see(memory, second * SECOND).shifted_ns == 0
    shifts = [see(memory, second * SECOND).shifted_ns for second in (1, 2, 3)]
    assert shifts == [0, 0, -106 * SECOND]  # what was at 106 s is now a second before the new beginning
    memory.close()


def test_the_frames_that_confirm_a_new_clock_are_in_a_row_and_in_order():
    clock, newest = FrameClock(), 1000 * SECOND
    assert told(clock, newest, 5 * SECOND, 5 * SECOND, 5 * SECOND, 5 * SECOND) == ([False] * 4, None)  # one instant
    assert told(clock, newest, 4 * SECOND, 5 * SECOND) == ([False] * 2, None)  # back once more: counted anew
    assert told(clock, newest, 6 * SECOND) == ([True], 4 * SECOND)
    clock = FrameClock()
    assert told(clock, newest, 1 * SECOND, 100 * SECOND, 101 * SECOND) == ([False] * 3, None)  # too far apart
    assert told(clock, newest, 102 * SECOND) == ([True], 100 * SECOND)


def test_small_steps_back_and_all_steps_forward_are_taken():
    clock, newest = FrameClock(), 1000 * SECOND
    assert told(clock, newest, newest - SECOND, newest, newest + 30 * 24 * 3600 * SECOND) == ([True] * 3, None)
    assert told(clock, 0, 5 * SECOND) == ([True], None)


def test_a_store_of_a_simulation_may_go_on_in_the_world_and_one_frame_does_not_decide_that():
    clock, now = FrameClock(lambda: 2 * 10**18), 2 * 10**18
    assert told(clock, 50 * SECOND, now, now + 1, now + 2) == ([False, False, True], None)
    assert told(clock, now, now + AHEAD_NS, now + AHEAD_NS + 1) == ([True, False], None)
