"""A small tf buffer: tf2_ros needs a full ROS installation, the messages alone do not."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

import numpy as np
from scipy.spatial.transform import Rotation, Slerp
from tf2_msgs.msg import TFMessage

from engram.core.errors import StaleDataError, unknown_name
from engram.core.geometry import make_pose, rotation, to_frame
from engram.core.types import Pose
from engram.nodes.messages import from_stamp, pose_from_transform

BACK_NS = 1_000_000_000
"""A stamp that lies this far before the newest means that time began anew: the simulation was restarted."""
KEPT = 64
"""Transforms kept per frame: 6 s at 10 Hz."""


class TransformBuffer:
    """The newest poses of every frame in its parent, and chains of them."""

    def __init__(self) -> None:
        self._static: dict[str, Pose] = {}
        self._moving: dict[str, deque[tuple[int, Pose]]] = {}

    def add_static(self, msg: TFMessage) -> None:
        """Take in transforms that always hold."""
        for transform in msg.transforms:
            self._static[transform.child_frame_id] = pose_from_transform(transform)

    def add(self, msg: TFMessage) -> None:
        """Take in transforms that hold at their stamps."""
        for transform in msg.transforms:
            history = self._moving.setdefault(transform.child_frame_id, deque(maxlen=KEPT))
            entry = (from_stamp(transform.header.stamp), pose_from_transform(transform))
            if history and entry[0] < history[-1][0] - BACK_NS:
                history.clear()
            if not history or entry[0] > history[-1][0]:
                history.append(entry)
            elif all(entry[0] != stamp for stamp, _ in history):
                ordered = list(history)
                insort(ordered, entry, key=lambda item: item[0])
                self._moving[transform.child_frame_id] = deque(ordered, maxlen=KEPT)

    def lookup(self, target: str, frame: str, stamp_ns: int) -> Pose:
        """Return the pose of ``frame`` in ``target`` at ``stamp_ns``, interpolated between neighbours in time.

        Raises:
            UnknownNameError: ``frame`` or one of its ancestors was never heard of.
            StaleDataError: a frame is known, but not (yet) at that time.
        """
        if frame == target:
            return make_pose(np.zeros(3), Rotation.identity(), target)
        pose = self._at(frame, stamp_ns)  # the usual case, one step, is bit for bit what was sent
        while pose.frame != target:
            parent = self._at(pose.frame, stamp_ns)
            pose = make_pose(to_frame(pose.position, parent), rotation(parent) * rotation(pose), parent.frame)
        return pose

    def _at(self, frame: str, stamp_ns: int) -> Pose:
        if frame in self._static:
            return self._static[frame]
        if frame not in self._moving:
            raise unknown_name("tf frame", frame, {*self._static, *self._moving})
        history = list(self._moving[frame])
        stamps = [stamp for stamp, _ in history]
        after = bisect_left(stamps, stamp_ns)
        if after < len(stamps) and stamps[after] == stamp_ns:
            return history[after][1]
        if after in (0, len(stamps)):
            raise StaleDataError(f"tf frame {frame!r} at {stamp_ns} ns: known from {stamps[0]} to {stamps[-1]} ns")
        (t0, a), (t1, b) = history[after - 1], history[after]
        share = (stamp_ns - t0) / (t1 - t0)
        turned = Slerp([0.0, 1.0], Rotation.concatenate([rotation(a), rotation(b)]))(share)
        return make_pose(a.position + share * (b.position - a.position), turned, a.frame)
