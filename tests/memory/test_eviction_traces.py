"""The traces that eviction policies are scored on, and what training on them was good for."""

from __future__ import annotations

import numpy as np
import pytest

from engram.benchmarks.eviction_traces import (
    MadeUpHome,
    Score,
    TraceEvent,
    household,
    made_up,
    play,
    seen,
    write_trace,
)
from engram.memory.stores.short_term.eviction_policies import make_eviction

HERE, THERE = (0.0, 0.0, 0.0), (1.0, 0.0, 0.0)


def change(key: str, place=HERE, absent: bool = False) -> TraceEvent:
    return TraceEvent(False, key, "cup", place, absent)


def question(key: str, place=HERE) -> TraceEvent:
    return TraceEvent(True, key, "cup", place)


def test_right_wrong_and_unknown_answers_by_hand():
    trace = [
        question("a"),  # nothing is known: passed on
        change("a", HERE),
        question("a", (0.2, 0.0, 0.0)),  # right within 0.3 m
        question("a", THERE),  # it was moved unseen: wrong
        change("a", absent=True),
        question("a", THERE),  # known to be gone: passed on
        change("b", THERE),
        question("a", THERE),  # any cup there will do
    ]
    assert play(make_eviction("lru", 2), trace) == Score(hits=2, stale=1, n=5)
    assert play(make_eviction("lru", 1), [change("a"), change("b", THERE), question("a")]) == Score(0, 1, 1)


@pytest.mark.parametrize("make", [household, lambda seed: made_up(seed, MadeUpHome(days=3))])
def test_a_trace_follows_from_its_seed_and_a_memory_without_bounds_is_the_limit(make):
    trace = make(3)
    assert trace == make(3) and trace != make(4)
    unbounded = play(make_eviction("lru", 10_000), trace)
    assert all(play(make_eviction(name, 8), trace).hits <= unbounded.hits for name in ("newest", "lfu", "w_tiny_lfu"))
    assert unbounded.hits + unbounded.stale <= unbounded.n


def test_the_robot_only_notes_what_changed():
    """In the household every note of a thing differs from the note before it."""
    last: dict[str, tuple] = {}
    for one in household(5):
        if one.question:
            continue
        now = None if one.absent else one.place
        assert one.key not in last or (last[one.key] is None) != (now is None) or not np.allclose(last[one.key], now)
        last[one.key] = now


def test_the_shipped_weights_beat_the_newest_changes_on_homes_they_were_not_trained_on():
    learned = newest = Score(0, 0, 0)
    for seed in (20, 21):
        trace = household(seed)
        learned = learned + play(make_eviction("learned", 8), trace)
        newest = newest + play(make_eviction("newest", 8), trace)
    assert learned.hits > 1.2 * newest.hits


def test_recorded_traces_hold_what_the_robots_memory_went_through():
    first, second = seen(2)
    assert first != second
    for trace in (first, second):
        keys = {one.key for one in trace if not one.question}
        asked = [one for one in trace if one.question]
        assert len(asked) > 100 and len(keys) > 30
        assert sum(one.key in keys for one in asked) > 0.9 * len(asked)  # the graph mostly knows what is asked for


def test_a_trace_comes_back_as_it_was_written(tmp_path):
    trace = [change("a"), question("a", THERE)]
    write_trace(tmp_path / "one.jsonl.gz", trace)
    written = (tmp_path / "one.jsonl.gz").read_bytes()
    write_trace(tmp_path / "one.jsonl.gz", trace)
    assert (tmp_path / "one.jsonl.gz").read_bytes() == written
