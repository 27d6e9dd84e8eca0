"""A small tf buffer. tf2_ros needs a full ROS installation; this one does not."""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation, Slerp

from engram.core.errors import InvalidInputError, StaleDataError, unknown_name
from engram.core.geometry import make_pose, rotation, to_frame
from engram.core.stamped_buffer import StampedBuffer
from engram.core.types import Pose
from engram.runtime.monitor import Monitor

KEPT = 64
"""Poses kept per frame: 6 s at 10 Hz."""
MOST_FRAMES = 1024
"""A robot has tens of frames; more than this come from somebody who makes up names."""
MOVES = 10
"""A frame that was said to be static moves by so many poses: 1 s at 10 Hz."""
ALIVE_NS = 2 * 10**9
"""It moves no longer when the newest of them is older than this [ns]."""


class TransformBuffer:
    """Keeps the newest poses of every frame in its parent, and composes them along the tree.

    A frame may be said to be static and to move: by mistake, or since its publisher was started with another
    configuration. It then moves as long as poses keep coming, see ``MOVES`` and ``ALIVE_NS``, and is else where it was
    said to be for good. In tf2 what was said last holds: there one message on tf takes a static pose away, which was
    sent once. Of all other things, what was said last of a frame holds here, too.

    Args:
        monitor: is told of frames that are said to be both.
    """

    def __init__(self, monitor: Monitor | None = None) -> None:
        self._monitor = monitor
        self._static: dict[str, Pose] = {}
        self._moving: dict[str, StampedBuffer[Pose]] = {}

    def add_static(self, frame: str, pose: Pose) -> None:
        """Take in the ``pose`` of ``frame`` in its parent ``pose.frame``, which holds while nobody says that it moves.

        Raises:
            InvalidInputError: it is a new one, and there are ``MOST_FRAMES``; those that are known go on.
        """
        self._bound(frame)
        self._static[frame] = pose
        self._compare(frame)

    def add(self, frame: str, stamp_ns: int, pose: Pose) -> None:
        """Take in the ``pose`` of ``frame`` in its parent ``pose.frame`` at ``stamp_ns``; the first said holds.

        Raises:
            InvalidInputError: as of :meth:`add_static`.
        """
        self._bound(frame)
        history = self._moving.setdefault(frame, StampedBuffer(KEPT))
        if history.newest is not None and history.newest.frame != pose.frame:
            history.clear()  # between poses in two parents nothing can be interpolated
        if stamp_ns not in history:
            history.add(stamp_ns, pose)
        self._compare(frame)

    def _bound(self, frame: str) -> None:
        known = frame in self._static or frame in self._moving
        if not known and len(self._static.keys() | self._moving.keys()) >= MOST_FRAMES:
            raise InvalidInputError(f"tf frame {frame[:100]!r}: the {MOST_FRAMES + 1}th, it is left out")

    def _compare(self, frame: str) -> None:
        """Tell if ``frame`` is said to be static and to move."""
        if self._monitor is not None and frame in self._static and frame in self._moving:
            self._monitor.count("tf of static frames")
            self._monitor.problem(
                "static tf",
                f"tf frame {frame[:100]!r} is said to be static and to move: it moves while poses keep coming. "
                "If its publisher was changed, restart this node",
            )

    def lookup(self, target: str, frame: str, stamp_ns: int) -> Pose:
        """Return the pose of ``frame`` in ``target`` at ``stamp_ns``, interpolated between neighbours in time.

        Raises:
            UnknownNameError: ``frame`` or one of its ancestors was never heard of.
            StaleDataError: a frame is known, but not (yet) at that time.
            InvalidInputError: the ancestors of ``frame`` are a cycle.
        """
        if frame == target:
            return make_pose(np.zeros(3), Rotation.identity(), target)
        pose = self._at(frame, stamp_ns)  # the usual case, one step, is bit for bit what was sent
        passed = [frame]
        while pose.frame != target:
            if pose.frame in passed:
                raise InvalidInputError(f"tf: {' in '.join([*passed, pose.frame])} is a cycle, expected a tree")
            passed.append(pose.frame)
            parent = self._at(pose.frame, stamp_ns)
            pose = make_pose(to_frame(pose.position, parent), rotation(parent) * rotation(pose), parent.frame)
        return pose

    def _at(self, frame: str, stamp_ns: int) -> Pose:
        if frame in self._static and not self._moves(frame, stamp_ns):
            return self._static[frame]
        if frame not in self._moving:
            raise unknown_name("tf frame", frame, {*self._static, *self._moving})
        history = self._moving[frame]
        if (exact := history.at(stamp_ns)) is not None:
            return exact
        before, after = history.before(stamp_ns), history.after(stamp_ns)
        if before is None or after is None:
            known = f"known from {history.oldest_ns} to {history.newest_ns} ns"
            raise StaleDataError(f"tf frame {frame!r} at {stamp_ns} ns: {known}")
        a, b = history.at(before), history.at(after)
        assert a is not None and b is not None
        share = (stamp_ns - before) / (after - before)
        turned = Slerp([0.0, 1.0], Rotation.concatenate([rotation(a), rotation(b)]))(share)
        return make_pose(a.position + share * (b.position - a.position), turned, a.frame)

    def _moves(self, frame: str, stamp_ns: int) -> bool:
        """Tell whether ``frame``, which was said to be static, moved at ``stamp_ns``."""
        history = self._moving.get(frame)
        if history is None or len(history) < MOVES:
            return False
        last_ns = stamp_ns if stamp_ns in history else history.before(stamp_ns)
        return last_ns is not None and stamp_ns - last_ns <= ALIVE_NS
