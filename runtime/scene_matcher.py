"""Scenes and the joint states of their instant, which tell where the hand was."""

from __future__ import annotations

from collections.abc import Callable

from engram.core.stamped_buffer import StampedBuffer
from engram.core.types import JointState, SceneObservation

KEPT = 64
"""Joint states kept for scenes that are still on their way: perception takes longer than they do."""
NEAR_NS = 100_000_000
"""In free running, joint states this near to a scene [ns] tell where the hand was."""

Arrived = tuple[SceneObservation, float]
"""A scene and when it was received [monotonic s]."""


class SceneMatcher:
    """Hands every scene on with the joint states of its instant, or with None where there are none.

    Args:
        emit: takes the scene, its joint states and when it was received [monotonic s].
        lockstep: joint states must have the stamp of the scene; one scene waits for them until the next comes.
        wants_joints: false where nothing is known of the hand; then no scene waits.
    """

    def __init__(
        self,
        emit: Callable[[SceneObservation, JointState | None, float], None],
        *,
        lockstep: bool,
        wants_joints: bool,
    ) -> None:
        self._emit, self._lockstep, self._wants_joints = emit, lockstep, wants_joints
        self._joints: StampedBuffer[JointState] = StampedBuffer(KEPT)
        self._waiting: Arrived | None = None

    def joints(self, joints: JointState) -> None:
        """Take in joint states."""
        self._joints.add(joints.stamp_ns, joints)
        if self._waiting is not None and self._waiting[0].stamp_ns == joints.stamp_ns:
            self._pass_on(*self._waiting)

    def scene(self, scene: SceneObservation, received_s: float) -> None:
        """Take in a scene."""
        if self._waiting is not None:  # its joint states were lost
            self._pass_on(*self._waiting)
        if self._wants_joints and self._lockstep and scene.stamp_ns not in self._joints:
            self._waiting = (scene, received_s)
        else:
            self._pass_on(scene, received_s)

    def _pass_on(self, scene: SceneObservation, received_s: float) -> None:
        self._waiting = None
        joints = self._joints.nearest(scene.stamp_ns, 0 if self._lockstep else NEAR_NS)
        self._emit(scene, joints, received_s)


def unreported(scene: SceneObservation) -> tuple[str, ...]:
    """Return what the sender of ``scene`` left out, for diagnostics: the memory fills it in or does without."""
    fields = {
        "position covariance": "position_covariance", "size": "size", "color": "color", "embedding": "embedding"
    }  # fmt: skip
    missing = [name for name, field in fields.items() if any(getattr(o, field) is None for o in scene.objects)]
    return (*missing, *(() if scene.has_view else ("camera view",)))
