"""A thread that takes the newest work from a bounded queue: rclpy callbacks stay short."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

LATER_MAX = 32
"""Items that wait until no other does, at most."""
STUCK_S = 30.0
"""A worker that has been busy with one item for longer is reported [s]."""
OTHERS = 8
"""Items that may come before one of those while it waits: on a machine that is too slow its turn comes, too."""


class Worker[T]:
    """Runs ``handle`` for each item put, in order, in one thread of its own.

    A full queue drops its oldest item, never the new one, and calls ``on_drop``. What is put to be kept is never
    dropped and does not count towards ``capacity``. What is put for later gives way to the others. An exception reaches
    ``on_error`` and the thread goes on with the next item.
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
        self._items: deque[tuple[T, bool]] = deque()  # item, whether it is to be kept
        self._droppable = 0  # of the items
        self._later: deque[T] = deque()
        self._overtaken = 0  # items in a row that came before those
        self._lock = threading.Lock()  # over all four
        self._ready: SimpleQueue[None] = SimpleQueue()  # one entry an item; in C: a condition takes longer
        self._capacity = capacity
        self._stopped = False
        self._began: float | None = None  # monotonic s, the item at hand; None: there is none
        self.name = name
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Return how many items wait."""
        return len(self._items) + len(self._later)

    @property
    def later(self) -> int:
        """How many of them wait for later."""
        return len(self._later)

    @property
    def busy_s(self) -> float:
        """How long the item at hand has taken so far [s]; 0 when there is none."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def put(self, item: T, *, keep: bool = False) -> None:
        """Queue ``item``; what does not fit any more is the oldest. A stopped worker takes nothing."""
        with self._lock:
            if self._stopped:
                return
            dropped = not keep and self._droppable >= self._capacity
            if dropped:
                del self._items[next(index for index, (_, kept) in enumerate(self._items) if not kept)]
            self._items.append((item, keep))
            self._droppable += not (keep or dropped)
        if dropped:
            self._on_drop()
        else:
            self._ready.put(None)

    def put_once(self, item: T) -> None:
        """Queue ``item``, which is not dropped; while it waits, once is enough."""
        with self._lock:
            if self._stopped or any(waiting == item for waiting, _ in self._items):
                return
            self._items.append((item, True))
        self._ready.put(None)

    def put_later(self, item: T) -> bool:
        """Queue ``item`` behind all others, never to be dropped; False: too many wait there, or the worker stopped."""
        with self._lock:
            if self._stopped or len(self._later) >= LATER_MAX:
                return False
            self._later.append(item)
        self._ready.put(None)
        return True

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Finish the item at hand, those to be kept and those for later; drop the rest.

        Returns False if the thread is still busy after ``timeout_s``.
        """
        with self._lock:
            self._stopped = True
            self._items = deque(entry for entry in self._items if entry[1])
        self._ready.put(None)  # to wake up for
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            self._ready.get()
            with self._lock:
                if not self._items and not self._later:  # only a stopped worker is woken for nothing
                    return
                item = self._next()
            self._began = time.monotonic()
            try:
                self._handle(item)
            except Exception as error:
                self._on_error(error)
            finally:
                self._began = None

    def _next(self) -> T:
        if self._later and (not self._items or self._overtaken >= OTHERS):
            self._overtaken = 0
            return self._later.popleft()
        self._overtaken = self._overtaken + 1 if self._later else 0
        item, keep = self._items.popleft()
        self._droppable -= not keep
        return item
