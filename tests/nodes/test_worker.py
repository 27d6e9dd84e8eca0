"""The worker thread: order, newest wins, errors do not end it."""

import threading

from engram.nodes.worker import Worker


def run(items, capacity, handle=None):
    """Put ``items`` while the worker is busy with a first one; return what it handled, dropped and failed at."""
    handled, errors, drops = [], [], []
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def work(item):
        if item == "first":
            begun.set()
            go_on.wait(10)
        elif item == "last":
            done.set()
        elif handle is not None:
            handle(item)
        handled.append(item)

    worker = Worker("w", work, capacity=capacity, on_error=errors.append, on_drop=lambda: drops.append(1))
    worker.put("first")
    assert begun.wait(10)
    for item in items:
        worker.put(item)
    go_on.set()
    if capacity > 1:
        worker.put("last")
    assert (done if (items and items[-1] == "last") or capacity > 1 else begun).wait(10)
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
