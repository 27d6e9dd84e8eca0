"""A thread that takes the newest work from a bounded queue: rclpy callbacks stay short."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class Worker[T]:
    """Runs ``handle`` for each item put, in order, in one thread of its own.

    A full queue drops its oldest item, never the new one, and calls ``on_drop``. An exception reaches ``on_error``
    and the thread goes on with the next item. Where several threads put at once, each may exceed the capacity by one.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[T], None],
        *,
        capacity: int,
        on_error: Callable[[Exception], None],
        on_drop: Callable[[], None] = lambda: None,
    ) -> None:
        self._handle, self._on_error, self._on_drop = handle, on_error, on_drop
        self._items: SimpleQueue[T | None] = SimpleQueue()  # in C: a condition takes longer than the hand-over
        self._capacity = capacity
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: T) -> None:
        """Queue ``item``; what does not fit any more is the oldest."""
        dropped = self._items.qsize() >= self._capacity and self._drop()
        self._items.put(item)
        if dropped:
            self._on_drop()

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Finish the item at hand, drop the rest; returns False if the thread is still busy after ``timeout_s``."""
        self._stopped = True
        self._items.put(None)  # to wake up for
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _drop(self) -> bool:
        with contextlib.suppress(Empty):
            self._items.get_nowait()
            return True
        return False

    def _run(self) -> None:
        while True:
            item = self._items.get()
            if self._stopped or item is None:
                return
            try:
                self._handle(item)
            except Exception as error:
                self._on_error(error)
