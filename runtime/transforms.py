"""A small tf buffer. tf2_ros needs a full ROS installation; this one does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation, Slerp

from engram.core.claims import PARTICIPANT, Writer
from engram.core.errors import InvalidInputError, StaleDataError, UnknownNameError, unknown_name
from engram.core.geometry import make_pose, rotation, to_frame
from engram.core.stamped_buffer import StampedBuffer
from engram.core.types import Pose
from engram.core.words import check_frame
from engram.runtime.monitor import Monitor

KEPT = 512
"""Poses kept per frame: 10 s at 50 Hz, as mobile bases publish theirs. A scene may come seconds after its picture."""
MOST_FRAMES = 1024
"""A robot has tens of frames; more than this come from somebody who makes up names."""
MOST_POSES = 1 << 16
"""Poses kept of all frames together, of some 400 bytes each: ``KEPT`` of 128 frames that move."""
DEEPEST = 64
"""Frames from one to another at most: a robot's chain is shorter, and each costs time."""
MOST_RIVALS = 8
"""Processes that may wait for one static frame."""
SETTLE_S = 1.0
"""Time between two looks at who publishes a static frame that two processes say [s]."""
MOVES = 10
"""A frame that was said to be static moves by so many poses: 1 s at 10 Hz."""
ALIVE_NS = 2 * 10**9
"""It moves no longer when the newest of them is older than this [ns]."""


@dataclass(frozen=True, slots=True)
class _Said:
    """The pose of a static frame, and the process that said it."""

    pose: Pose
    process: bytes


class TransformBuffer:
    """Keeps the newest poses of every frame in its parent, and composes them along the tree.

    A frame may be said to be static and to move: by mistake, or since its publisher was started with another
    configuration. It then moves as long as poses keep coming, see ``MOVES`` and ``ALIVE_NS``, and is else where it was
    said to be for good. In tf2 what was said last holds: there one message on tf takes a static pose away, which was
    sent once.

    A static frame belongs to the process that said it first, for as long as that one is there: what it says last holds,
    and another pose of another process waits, see :meth:`settle`. Of all other things, what was said last of a frame
    holds here, too.

    Beyond ``MOST_FRAMES`` a frame is forgotten that nobody asked for, of the process that named most of those: the one
    that was heard longest ago. Beyond ``MOST_POSES`` the poses of one frame are forgotten: of the process whose
    frames have most, the frame that has most. What somebody asked for goes last.

    Args:
        monitor: is told of frames that are said to be both, of those that two processes say, and of forgotten ones.
    """

    def __init__(self, monitor: Monitor | None = None) -> None:
        self._monitor = monitor
        self._static: dict[str, _Said] = {}
        self._rivals: dict[str, dict[bytes, Pose]] = {}  # static frame -> what others than its owner say, first first
        self._moving: dict[str, StampedBuffer[Pose]] = {}
        self._namer: dict[str, bytes] = {}  # frame -> the process that named it first
        self._named: dict[bytes, dict[str, None]] = {}  # process -> its frames, the one heard longest ago first
        self._poses = 0  # of all that move
        self._asked: set[str] = set()  # frames that a lookup went through, in another thread

    def add_static(self, frame: str, pose: Pose, writer: bytes = b"") -> None:
        """Take in the ``pose`` of ``frame`` in its parent ``pose.frame``, which holds while nobody says that it moves.

        Args:
            writer: identifier of the publisher that says so.

        Raises:
            InvalidInputError: the name of ``frame`` is too long.
        """
        process = self._admit(frame, writer)
        held = self._static.get(frame)
        if held is None or held.process == process:
            self._static[frame] = _Said(pose, process)
        elif process in (rivals := self._rivals.setdefault(frame, {})) or len(rivals) < MOST_RIVALS:
            rivals[process] = pose
        self._compare(frame)

    def add(self, frame: str, stamp_ns: int, pose: Pose, writer: bytes = b"") -> None:
        """Take in the ``pose`` of ``frame`` in its parent ``pose.frame`` at ``stamp_ns``; the first said holds.

        Args and Raises: as of :meth:`add_static`.
        """
        self._admit(frame, writer)
        history = self._moving.setdefault(frame, StampedBuffer(KEPT))
        before = len(history)
        if history.newest is not None and history.newest.frame != pose.frame:
            history.clear()  # between poses in two parents nothing can be interpolated
        if stamp_ns not in history:
            history.add(stamp_ns, pose)
        self._poses += len(history) - before
        self._compare(frame)
        if self._poses > MOST_POSES:
            self._forget_poses()

    def settle(self, writers: Callable[[], Sequence[Writer]]) -> None:
        """Give static frames whose process is gone to the first of those that said another pose and are there.

        While it is there, the other is named: a stray recording, or a new calibration that waits for the old one to go.

        Args:
            writers: gives the publishers of static frames that are there now.
        """
        nodes = {writer.gid[:PARTICIPANT]: writer.node for writer in writers()} if self._rivals else {}
        for frame, said in list(self._rivals.items()):
            rivals = {process: pose for process, pose in said.items() if process in nodes}
            held = self._static[frame]
            if rivals and held.process not in nodes:  # who said the same is the owner, started again, or its twin
                process = next((one for one, pose in rivals.items() if _same(pose, held.pose)), next(iter(rivals)))
                held = self._static[frame] = _Said(rivals.pop(process), process)
            self._rivals[frame] = rivals
            unlike = next((one for one, pose in rivals.items() if not _same(pose, held.pose)), None)
            if not rivals:
                del self._rivals[frame]
            elif unlike is not None and self._monitor is not None:
                other, owner = (nodes[one] or "an unknown node" for one in (unlike, held.process))
                self._monitor.problem(
                    "writer of tf_static",
                    f"tf frame {frame[:100]!r}: {other} says another pose than {owner}, which this node heard first "
                    "and which still runs: the first one counts. To change it, end that one",
                )

    def _admit(self, frame: str, writer: bytes) -> bytes:
        """Note that ``frame`` was heard of, and make room for it; return the process of ``writer``."""
        check_frame("tf frame", frame)
        process = writer[:PARTICIPANT]
        if frame not in self._namer and len(self._namer) >= MOST_FRAMES:
            self._forget_one()
        names = self._named.setdefault(self._namer.setdefault(frame, process), {})
        names.pop(frame, None)
        names[frame] = None
        return process

    def _forget_one(self) -> None:
        asked = Counter(self._namer.get(name) for name in tuple(self._asked))
        process, names = max(self._named.items(), key=lambda item: len(item[1]) - asked[item[0]])
        gone = next((name for name in names if name not in self._asked), next(iter(names)))
        del names[gone], self._namer[gone]
        if not names:
            del self._named[process]
        self._poses -= len(self._moving.get(gone, ()))
        for kept in (self._static, self._rivals, self._moving):
            kept.pop(gone, None)
        self._asked.discard(gone)
        self._tell_forgotten(gone, f"more than {MOST_FRAMES}")

    def _forget_poses(self) -> None:
        """Forget the poses of a frame that moves, but not that it was said to be static: that is said only once."""
        spare = [name for name in self._moving if name not in self._asked] or [*self._moving]
        poses = Counter[bytes]()
        for name in spare:
            poses[self._namer[name]] += len(self._moving[name])
        ((process, _),) = poses.most_common(1)
        gone = max((name for name in spare if self._namer[name] == process), key=lambda name: len(self._moving[name]))
        self._poses -= len(self._moving.pop(gone))
        self._tell_forgotten(gone, f"more than {MOST_POSES} poses")

    def _tell_forgotten(self, frame: str, why: str) -> None:
        if self._monitor is not None:
            self._monitor.count("tf frames forgotten")
            self._monitor.problem("tf frames", f"{why}: {frame[:100]!r} was forgotten")

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
            UnknownNameError: ``frame`` or one of its ancestors was never heard of, and ``target`` hangs on none.
            StaleDataError: a frame is known, but not (yet) at that time.
            InvalidInputError: the ancestors of ``frame`` are a cycle, or more than ``DEEPEST``.
        """
        below, missing = self._ancestors(frame, target, stamp_ns)
        if missing is None:
            self._asked.update(below)
            return below[target]
        try:  # some hang their cameras on another frame of the base, base_footprint say
            beside, unlike = self._ancestors(target, next(reversed(below)), stamp_ns)
        except (StaleDataError, InvalidInputError):
            raise missing from None
        if unlike is not None:
            raise missing
        self._asked.update(below, beside)
        common = next(name for name in below if name in beside)
        a, b = below[common], beside[common]
        back = rotation(b).inv()
        return make_pose(back.apply(a.position - b.position), back * rotation(a), target)

    def _ancestors(self, frame: str, until: str, stamp_ns: int) -> tuple[dict[str, Pose], UnknownNameError | None]:
        """Return the pose of ``frame`` in itself and in each of its ancestors up to ``until``, nearest first.

        Also returns the error that the last of them is in no other frame; None: ``until`` was reached. Raises as
        :meth:`lookup` does.
        """
        poses = {frame: make_pose(np.zeros(3), Rotation.identity(), frame)}
        last = frame
        while last != until:
            try:
                parent = self._at(last, stamp_ns)
            except UnknownNameError as error:
                return poses, error
            if parent.frame in poses:
                raise InvalidInputError(f"tf: {' in '.join([*poses, parent.frame])} is a cycle, expected a tree")
            if len(poses) > DEEPEST:
                raise InvalidInputError(f"tf: {frame} is more than {DEEPEST} frames from {until}")
            pose = poses[last]
            if len(poses) > 1:
                parent = make_pose(to_frame(pose.position, parent), rotation(parent) * rotation(pose), parent.frame)
            last = parent.frame  # of one step, the usual case, the pose is bit for bit what was sent
            poses[last] = parent
        return poses, None

    def _at(self, frame: str, stamp_ns: int) -> Pose:
        said, history = self._static.get(frame), self._moving.get(frame)  # another thread may forget the frame
        if said is not None and not self._moves(frame, stamp_ns):
            return said.pose
        if history is None:
            raise unknown_name("tf frame", frame, {*self._static, *self._moving})
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


def _same(a: Pose, b: Pose) -> bool:
    """Tell whether two publishers say the same pose, as two that read one description do."""
    turned = 1.0 - abs(float(a.quaternion @ b.quaternion))
    return a.frame == b.frame and turned < 1e-9 and bool(np.allclose(a.position, b.position, rtol=0.0, atol=1e-6))
