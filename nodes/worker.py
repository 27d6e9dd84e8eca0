"""A thread that takes the newest work from a bounded queue: rclpy callbacks stay short."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Worker[T]:
    """Runs ``handle`` for each item put, in order, in one thread of its own.

    A full queue drops its oldest item, never the new one, and calls ``on_drop``. An exception reaches ``on_error``
    and the thread goes on with the next item.
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
        self._items: deque[T] = deque()
        self._capacity = capacity
        self._ready = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: T) -> None:
        """Queue ``item``; what does not fit any more is the oldest."""
        with self._ready:
            dropped = len(self._items) >= self._capacity
            if dropped:
                self._items.popleft()
            self._items.append(item)
            self._ready.notify()
        if dropped:
            self._on_drop()

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Finish the item at hand, drop the rest; returns False if the thread is still busy after ``timeout_s``."""
        with self._ready:
            self._stopped = True
            self._items.clear()
            self._ready.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._ready:
                self._ready.wait_for(lambda: self._items or self._stopped)
                if self._stopped:
                    return
                item = self._items.popleft()
            try:
                self._handle(item)
            except Exception as error:
                self._on_error(error)
