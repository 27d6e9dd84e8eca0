"""A small tf buffer. tf2_ros needs a full ROS installation; this one does not."""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation, Slerp

from engram.core.errors import InvalidInputError, StaleDataError, unknown_name
from engram.core.geometry import make_pose, rotation, to_frame
from engram.core.stamped_buffer import StampedBuffer
from engram.core.types import Pose

KEPT = 64
"""Poses kept per frame: 6 s at 10 Hz."""
MOST_FRAMES = 1024
"""A robot has tens of frames; more than this come from somebody who makes up names."""


class TransformBuffer:
    """Keeps the newest poses of every frame in its parent, and composes them along the tree.

    What was said last of a frame holds, as in tf2: that it never moves, or where it was at a time, in which parent. So
    no message does harm that the next right one does not undo.
    """

    def __init__(self) -> None:
        self._static: dict[str, Pose] = {}
        self._moving: dict[str, StampedBuffer[Pose]] = {}

    def add_static(self, frame: str, pose: Pose) -> None:
        """Take in the ``pose`` of ``frame`` in its parent ``pose.frame``, which always holds.

        Raises:
            InvalidInputError: it is a new one, and there are ``MOST_FRAMES``; those that are known go on.
        """
        self._bound(frame)
        self._static[frame] = pose
        self._moving.pop(frame, None)

    def add(self, frame: str, stamp_ns: int, pose: Pose) -> None:
        """Take in the ``pose`` of ``frame`` in its parent ``pose.frame`` at ``stamp_ns``; the first said holds.

        Raises:
            InvalidInputError: as of :meth:`add_static`.
        """
        self._bound(frame)
        self._static.pop(frame, None)
        history = self._moving.setdefault(frame, StampedBuffer(KEPT))
        if history.newest is not None and history.newest.frame != pose.frame:
            history.clear()  # between poses in two parents nothing can be interpolated
        if stamp_ns not in history:
            history.add(stamp_ns, pose)

    def _bound(self, frame: str) -> None:
        known = frame in self._static or frame in self._moving
        if not known and len(self._static) + len(self._moving) >= MOST_FRAMES:
            raise InvalidInputError(f"tf frame {frame[:100]!r}: the {MOST_FRAMES + 1}th, it is left out")

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
        if frame in self._static:
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
