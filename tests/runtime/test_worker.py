"""The worker thread: order, newest wins, errors do not end it."""

import threading
import time

from engram.runtime.worker import LATER_MAX, OTHERS, Worker


def run(items, capacity, handle=None):
    """Put ``items`` while the worker is busy with a first one; return what it handled, dropped and failed at."""
    handled, errors, drops = [], [], []
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def work(item):
        if item == "first":
            begun.set()
            go_on.wait(60)
        elif item == "last":
            done.set()
        elif handle is not None:
            handle(item)
        handled.append(item)

    worker = Worker("w", work, capacity=capacity, on_error=errors.append, on_drop=lambda: drops.append(1))
    worker.put("first")
    assert begun.wait(60)
    for item in items:
        worker.put(item)
    go_on.set()
    if capacity > 1:
        worker.put("last")
    assert (done if (items and items[-1] == "last") or capacity > 1 else begun).wait(60)
    assert worker.stop()
    return handled, len(drops), errors


def test_a_full_queue_drops_the_oldest_and_counts_it():
    handled, drops, _ = run(["a", "b", "c", "last"], capacity=1)
    assert handled == ["first", "last"]
    assert drops == 3


def test_nothing_is_lost_and_order_is_kept_while_there_is_room():
    handled, drops, _ = run(["a", "b", "c"], capacity=10)
    assert handled == ["first", "a", "b", "c", "last"]
    assert drops == 0


def test_an_error_is_reported_and_the_next_item_handled():
    def fail(item):
        if item == "bad":
            raise ValueError(item)

    handled, _, errors = run(["bad", "good"], 10, fail)
    assert handled == ["first", "good", "last"]
    assert [str(e) for e in errors] == ["bad"]


def blocked(capacity):
    """Return a worker that is busy with a first item, what lets it go on, what it handled and its drops."""
    handled, drops = [], []
    begun, go_on = threading.Event(), threading.Event()

    def work(item):
        begun.set()
        go_on.wait(60)
        handled.append(item)
        if isinstance(item, threading.Event):
            item.set()

    worker = Worker("w", work, capacity=capacity, on_error=lambda error: None, on_drop=lambda: drops.append(1))
    worker.put("first")
    assert begun.wait(60)
    return worker, go_on, handled, drops


def test_what_is_to_be_kept_is_never_dropped_and_order_is_kept():
    worker, go_on, handled, drops = blocked(capacity=2)
    for item in ("a", "KEEP 1", "b", "KEEP 2", "c", "d", "KEEP 3"):
        worker.put(item, keep=item.startswith("KEEP"))
    done = threading.Event()
    worker.put(done, keep=True)
    go_on.set()
    assert done.wait(60)
    assert worker.stop()
    assert handled == ["first", "KEEP 1", "KEEP 2", "c", "d", "KEEP 3", done]
    assert len(drops) == 2


def test_a_stopped_worker_has_done_what_was_to_be_kept_dropped_the_rest_and_takes_nothing_more():
    worker, go_on, handled, drops = blocked(capacity=8)
    for item in ("a", "KEEP 1", "b", "KEEP 2"):
        worker.put(item, keep=item.startswith("KEEP"))
    assert not worker.stop(timeout_s=0.05)
    worker.put("late", keep=True)
    go_on.set()
    assert worker.stop()
    assert handled == ["first", "KEEP 1", "KEEP 2"]
    assert not drops


def test_it_tells_how_long_the_item_at_hand_has_taken_and_what_waits():
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def work(item):
        begun.set()
        go_on.wait(60)
        if item == 2:
            done.set()

    worker = Worker("w", work, capacity=4, on_error=lambda error: None)
    assert (worker.busy_s, len(worker)) == (0.0, 0)
    worker.put(1)
    worker.put(2)
    assert begun.wait(60) and len(worker) == 1
    before = worker.busy_s
    time.sleep(0.05)
    assert worker.busy_s >= before + 0.05
    go_on.set()
    assert done.wait(60) and worker.stop(60.0)
    assert worker.busy_s == 0.0


def test_what_is_enough_once_waits_once_and_is_done_again_when_it_comes_while_it_runs():
    worker, go_on, handled, drops = blocked(capacity=1)
    worker.put_once("commit")
    worker.put("a")
    worker.put("b")
    worker.put_once("commit")
    worker.put_once("first")  # the one at hand may have missed what this one is for
    done = threading.Event()
    worker.put(done, keep=True)
    go_on.set()
    assert done.wait(60) and worker.stop()
    assert handled == ["first", "commit", "b", "first", done]
    assert len(drops) == 1
    worker.put_once("late")
    assert len(worker) == 0


def test_the_same_method_of_an_object_is_the_same_item():
    """Python makes a new bound method at each access."""
    worker, go_on, handled, _ = blocked(capacity=1)
    items = []
    worker.put_once(items.clear)
    worker.put_once(items.clear)
    assert len(worker) == 1
    go_on.set()
    assert worker.stop() and len(handled) == 2


def test_what_is_for_later_gives_way_to_the_others_and_still_gets_its_turn():
    worker, go_on, handled, _ = blocked(capacity=64)
    assert worker.put_later("question 1") and worker.put_later("question 2")
    for number in range(OTHERS + 1):
        worker.put(f"scene {number}")
    worker.put_once("commit")
    done = threading.Event()
    worker.put(done)
    assert (len(worker), worker.later) == (OTHERS + 5, 2)
    go_on.set()
    assert done.wait(60) and worker.stop()
    scenes = [f"scene {number}" for number in range(OTHERS + 1)]
    assert handled == ["first", *scenes[:-1], "question 1", scenes[-1], "commit", done, "question 2"]


def test_more_for_later_than_may_wait_is_refused_and_what_waits_is_done_by_a_stopped_worker():
    worker, go_on, handled, drops = blocked(capacity=1)
    taken = [worker.put_later(number) for number in range(1000)]
    assert taken == [True] * LATER_MAX + [False] * (1000 - LATER_MAX)
    worker.put("scene")
    assert not worker.stop(timeout_s=0.05)
    assert not worker.put_later("late")
    go_on.set()
    assert worker.stop() and handled == ["first", *range(LATER_MAX)] and not drops
