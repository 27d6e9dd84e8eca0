"""The laws of the buffer, against a plain dictionary that forgets nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engram.core.stamped_buffer import RESTART_NS, StampedBuffer, clock_restarted

near = st.integers(0, RESTART_NS)  # no two of them are a restart apart
capacities = st.integers(1, 6)


def filled(capacity: int, stamps: list[int]) -> StampedBuffer[int]:
    """Return a buffer in which the n-th stamp added holds n."""
    buffer: StampedBuffer[int] = StampedBuffer(capacity)
    for number, stamp in enumerate(stamps):
        buffer.add(stamp, number)
    return buffer


@given(capacities, st.lists(near, max_size=30))
def test_it_holds_the_newest_stamps_in_order_each_with_the_last_item_added(capacity, stamps):
    buffer = filled(10**6, stamps)
    last = {stamp: number for number, stamp in enumerate(stamps)}
    assert buffer.stamps == tuple(sorted(last))
    assert {stamp: buffer.at(stamp) for stamp in last} == last
    assert filled(capacity, sorted(last)).stamps == tuple(sorted(last)[-capacity:])


@given(capacities, st.lists(near, max_size=30))
def test_whatever_the_order_it_never_holds_more_than_its_capacity_and_nothing_is_lost_unsaid(capacity, stamps):
    buffer, gone = StampedBuffer(capacity), []
    for number, stamp in enumerate(stamps):
        replaced = [buffer.at(stamp)] if stamp in buffer else []
        gone += replaced + buffer.add(stamp, number)
        assert len(buffer) <= capacity
    left = [buffer.at(stamp) for stamp in buffer.stamps]
    assert sorted(gone + left) == list(range(len(stamps)))


@given(st.lists(near, min_size=1, max_size=20), near)
def test_neighbours_are_what_a_search_through_all_finds(stamps, asked):
    buffer = filled(100, stamps)
    assert buffer.before(asked) == max((s for s in stamps if s < asked), default=None)
    assert buffer.after(asked) == min((s for s in stamps if s > asked), default=None)
    assert (buffer.oldest_ns, buffer.newest_ns) == (min(stamps), max(stamps))
    assert buffer.newest == buffer.at(max(stamps))


@given(st.lists(near, min_size=1, max_size=20), near, near)
def test_the_nearest_is_none_or_as_near_as_any(stamps, asked, within):
    distance = min(abs(stamp - asked) for stamp in stamps)
    found = filled(100, stamps).nearest(asked, within)
    assert (found is None) == (distance > within)
    assert found is None or abs(stamps[found] - asked) == distance


@given(st.lists(near, max_size=20, unique=True), near)
def test_popping_through_splits_it_in_two(stamps, through):
    buffer = filled(100, stamps)
    popped = [stamps[number] for number in buffer.pop_through(through)]
    assert popped == sorted(s for s in stamps if s <= through)
    assert buffer.stamps == tuple(sorted(s for s in stamps if s > through))


@given(st.lists(near, min_size=1, max_size=10), st.integers(RESTART_NS + 1, 10**12))
def test_a_stamp_far_in_the_past_begins_anew_and_gives_back_all_that_was_there(stamps, back):
    stamps = [stamp + back for stamp in stamps]
    buffer = filled(100, stamps)
    before = [buffer.at(stamp) for stamp in buffer.stamps]
    restart = max(stamps) - back
    assert buffer.restarts(restart)
    assert buffer.add(restart, -1) == before
    assert buffer.stamps == (restart,)


def test_one_second_back_is_a_late_message_and_more_is_a_new_clock():
    assert not clock_restarted(5 * RESTART_NS, 4 * RESTART_NS)
    assert clock_restarted(5 * RESTART_NS, 4 * RESTART_NS - 1)
    assert not StampedBuffer(1).restarts(0)  # nothing was there before


def test_an_empty_buffer_knows_nothing():
    buffer: StampedBuffer[int] = StampedBuffer(2)
    assert (buffer.newest, buffer.newest_ns, buffer.oldest_ns, buffer.before(0), buffer.after(0)) == (None,) * 5
    assert (buffer.at(0), buffer.pop(0), buffer.nearest(0, 10), buffer.pop_through(0)) == (None, None, None, [])


@pytest.mark.parametrize("stamp", [3, 1, 2])
def test_one_item_may_be_taken_out_of_the_middle(stamp):
    buffer = filled(5, [1, 2, 3])
    assert buffer.pop(stamp) == stamp - 1
    assert buffer.stamps == tuple(s for s in (1, 2, 3) if s != stamp)


@given(capacities, st.lists(st.integers(-RESTART_NS, 10 * RESTART_NS), max_size=20), st.integers(0, 9))
def test_no_stamps_of_the_past_or_future_keep_out_what_comes_after_them(capacity, hostile, first):
    buffer = filled(capacity, hostile)
    good = [first * RESTART_NS + step * 10**8 for step in range(capacity)]
    for stamp in good:
        buffer.add(stamp, stamp)
        assert stamp in buffer
    assert buffer.stamps == tuple(good)
