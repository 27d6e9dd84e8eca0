"""Watches one camera: names what keeps its frames from becoming complete. No ROS."""

from __future__ import annotations

from engram.runtime.assembly import CameraInbox

LOOKS = 3
"""Looks without progress after which the watch says so."""


class CameraWatch:
    """Looks at ``inbox`` once a second, while somebody publishes ``topic``, which brings its color images."""

    def __init__(self, inbox: CameraInbox, topic: str) -> None:
        self._inbox, self._topic = inbox, topic
        self.complete_ns = -1  # stamp of the newest complete frame
        self.resting_ns = -1  # stamp of the newest picture of a simulation at rest, which shows no depth
        self._waiting = 0  # looks at a frame that does not become complete
        self._silent, self._pictures = 0, 0  # looks at a camera that sends nothing; pictures at the last

    def completed(self, stamp_ns: int) -> None:
        """The frame at ``stamp_ns`` is complete."""
        self.complete_ns, self._waiting = stamp_ns, 0

    def look(self) -> str | None:
        """Return what is wrong; empty: nothing; None: a frame is incomplete, but has not been for long."""
        self._silent = self._silent + 1 if self._inbox.pictures == self._pictures else 0
        self._pictures = self._inbox.pictures
        if self._silent >= LOOKS:
            return f"{self._topic}: no picture that can be used for {self._silent} s"
        newest = self._inbox.newest_color()
        if newest is None or newest in (self.complete_ns, self.resting_ns):
            return ""
        self._waiting += 1
        return f"frames incomplete: lacks {', '.join(self._inbox.missing(newest))}" if self._waiting >= LOOKS else None
