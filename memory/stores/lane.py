"""One worker thread per store: calls to one store run in order, calls to different stores run in parallel."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from engram.core.contracts import MemoryStore
from engram.core.questions import Selection
from engram.core.types import Evidence

SLOW_S = 0.02
"""A store whose answers usually take longer than this is queried on its own thread. Python's threads share one
interpreter lock, so handing a short computation to another thread costs more than it saves."""
_SMOOTHING = 0.1
"""Weight of the newest measurement in the running mean of a store's answer time."""


class StoreLane:
    """Writes go to the store's thread. A read runs there too while writes are pending or answers are usually slow,
    and otherwise on the caller's thread."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=store.name)
        self._writes: list[Future[object]] = []
        self._last: Future[Any] | None = None  # newest call on the thread; when it is done, so are those before it
        self._mean_s: float | None = None

    @property
    def is_asynchronous(self) -> bool:
        """Whether the next question runs on the store's own thread."""
        return self._busy or (self._mean_s is not None and self._mean_s > SLOW_S)

    @property
    def _busy(self) -> bool:
        return self._last is not None and not self._last.done()

    def write(self, call: Callable[[], object]) -> None:
        """Queue ``call``; an exception in it is raised by the next :meth:`settle`."""
        self._writes = [write for write in self._writes if not write.done() or write.exception()]
        self._writes.append(self._queue(call))

    def read(self, call: Callable[[], Any]) -> Future[Any]:
        """Run ``call`` after all earlier writes: at once when none is pending."""
        return self._queue(call) if self._busy else _done(call)

    def recall(self, selection: Selection) -> Future[tuple[Evidence, ...]]:
        """Query the store after all earlier writes."""
        call = partial(self._timed_recall, selection)
        return self._queue(call) if self.is_asynchronous else _done(call)

    def settle(self) -> None:
        """Wait for all writes; raise the first exception among them."""
        writes, self._writes = self._writes, []
        for write in writes:
            write.result()

    def close(self) -> None:
        """Finish the queued calls and end the thread."""
        self._thread.shutdown()

    def _queue(self, call: Callable[[], Any]) -> Future[Any]:
        self._last = self._thread.submit(call)
        return self._last

    def _timed_recall(self, selection: Selection) -> tuple[Evidence, ...]:
        begin = time.perf_counter()
        found = self.store.recall(selection)
        took = time.perf_counter() - begin
        self._mean_s = took if self._mean_s is None else self._mean_s + _SMOOTHING * (took - self._mean_s)
        return found


def _done(call: Callable[[], Any]) -> Future[Any]:
    """Return the finished future of ``call``, run on this thread."""
    future: Future[Any] = Future()
    try:
        future.set_result(call())
    except Exception as error:  # noqa: BLE001 - raised by result(), as from a thread
        future.set_exception(error)
    return future
