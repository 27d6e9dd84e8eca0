"""Items kept by time stamp until what belongs to the same instant arrives; the one rule for a clock that restarts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

from engram.core.arrays import positive_int

RESTART_NS = 1_000_000_000
"""A stamp this far before the newest [ns] cannot be a late message: the clock began anew, as a simulation's does."""
WALL_CLOCK_NS = 10**17
"""Stamps above this (March 1973) are wall-clock time; a simulation's clock begins at 0."""


def clock_restarted(newest_ns: int, stamp_ns: int) -> bool:
    """Tell whether ``stamp_ns`` [ns], arriving after ``newest_ns``, means that time began anew.

    Smaller steps back are messages that were overtaken.
    """
    return newest_ns - stamp_ns > RESTART_NS


class StampedBuffer[T]:
    """At most ``capacity`` items in the order of their stamps [ns]; one item a stamp, the last one added.

    Beyond the capacity the items go that were added first, whatever their stamps: items from the future, of a sender
    whose clock is wrong, would otherwise keep out all that come after them. When the clock restarts, all items go:
    their stamps mean nothing on the new one. Not for several threads.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = positive_int("StampedBuffer.capacity", capacity)
        self._stamps: list[int] = []  # sorted
        self._items: dict[int, T] = {}  # in the order in which they were added

    def __len__(self) -> int:
        return len(self._stamps)

    def __contains__(self, stamp_ns: int) -> bool:
        return stamp_ns in self._items

    @property
    def stamps(self) -> tuple[int, ...]:
        """The stamps [ns], oldest first."""
        return tuple(self._stamps)

    @property
    def oldest_ns(self) -> int | None:
        """The oldest stamp [ns]; None when empty."""
        return self._stamps[0] if self._stamps else None

    @property
    def newest_ns(self) -> int | None:
        """The newest stamp [ns]; None when empty."""
        return self._stamps[-1] if self._stamps else None

    @property
    def newest(self) -> T | None:
        """The item with the newest stamp; None when empty."""
        return self._items[self._stamps[-1]] if self._stamps else None

    def restarts(self, stamp_ns: int) -> bool:
        """Tell whether an item at ``stamp_ns`` would mean that the clock began anew."""
        return bool(self._stamps) and clock_restarted(self._stamps[-1], stamp_ns)

    def add(self, stamp_ns: int, item: T) -> list[T]:
        """Keep ``item``; return the items that had to go: over capacity, or of the clock before."""
        gone = self._drain(len(self._stamps)) if self.restarts(stamp_ns) else []
        self.pop(stamp_ns)  # it counts as added now
        insort(self._stamps, stamp_ns)
        self._items[stamp_ns] = item
        while len(self._items) > self.capacity:
            first = next(iter(self._items))
            del self._stamps[bisect_left(self._stamps, first)]
            gone.append(self._items.pop(first))
        return gone

    def at(self, stamp_ns: int) -> T | None:
        """Return the item at exactly ``stamp_ns``; None if there is none."""
        return self._items.get(stamp_ns)

    def before(self, stamp_ns: int) -> int | None:
        """Return the newest stamp [ns] before ``stamp_ns``; None if there is none."""
        index = bisect_left(self._stamps, stamp_ns)
        return self._stamps[index - 1] if index else None

    def after(self, stamp_ns: int) -> int | None:
        """Return the oldest stamp [ns] after ``stamp_ns``; None if there is none."""
        index = bisect_right(self._stamps, stamp_ns)
        return self._stamps[index] if index < len(self._stamps) else None

    def nearest(self, stamp_ns: int, within_ns: int) -> T | None:
        """Return the item nearest to ``stamp_ns``, at most ``within_ns`` away; of two equally near, the older."""
        if stamp_ns in self._items:
            return self._items[stamp_ns]
        found = [stamp for stamp in (self.before(stamp_ns), self.after(stamp_ns)) if stamp is not None]
        nearest = min(found, key=lambda stamp: abs(stamp - stamp_ns), default=None)
        return self._items[nearest] if nearest is not None and abs(nearest - stamp_ns) <= within_ns else None

    def pop(self, stamp_ns: int) -> T | None:
        """Take out the item at exactly ``stamp_ns`` and return it; None if there is none."""
        if stamp_ns not in self._items:
            return None
        del self._stamps[bisect_left(self._stamps, stamp_ns)]
        return self._items.pop(stamp_ns)

    def pop_through(self, stamp_ns: int) -> list[T]:
        """Take out every item up to and including ``stamp_ns`` and return them, oldest first."""
        return self._drain(bisect_right(self._stamps, stamp_ns))

    def clear(self) -> None:
        """Forget everything."""
        self._drain(len(self._stamps))

    def _drain(self, count: int) -> list[T]:
        """Take out the ``count`` oldest items."""
        going = self._stamps[:count]
        del self._stamps[:count]
        return [self._items.pop(stamp) for stamp in going]
