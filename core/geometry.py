"""Rigid transforms and pinhole projection on top of SciPy's rotations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.types import POSITION_SIGMA_M, Body, DetectedObject, Pose, SceneObservation


def rotation(pose: Pose) -> Rotation:
    """Return the rotation of ``pose``."""
    return Rotation.from_quat(pose.quaternion, scalar_first=True)


def make_pose(position: np.ndarray, rotation_: Rotation, frame: str = "base_link") -> Pose:
    """Build a pose from a position (3,) m and a rotation; the quaternion's w is never negative."""
    return Pose(np.asarray(position, np.float64), rotation_.as_quat(canonical=True, scalar_first=True), frame)


def matrix(pose: Pose) -> np.ndarray:
    """Return the (4, 4) homogeneous transform of ``pose``."""
    out = np.eye(4)
    out[:3, :3] = rotation(pose).as_matrix()
    out[:3, 3] = pose.position
    return out


def backproject(depth: np.ndarray, intrinsics: np.ndarray) -> np.ndarray:
    """Lift a depth image (H, W) m to points (H, W, 3) m in the optical frame (x right, y down, z forward)."""
    height, width = depth.shape
    u, v = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    x = (u - intrinsics[0, 2]) / intrinsics[0, 0]
    y = (v - intrinsics[1, 2]) / intrinsics[1, 1]
    return np.stack((x * depth, y * depth, depth), axis=-1)


def project(points: np.ndarray, intrinsics: np.ndarray) -> np.ndarray:
    """Project optical-frame points (N, 3) m to pixels (N, 2); the inverse of :func:`backproject`."""
    uv = points[:, :2] / points[:, 2:3]
    return uv * (intrinsics[0, 0], intrinsics[1, 1]) + (intrinsics[0, 2], intrinsics[1, 2])


def to_frame(points: np.ndarray, pose: Pose) -> np.ndarray:
    """Express child-frame points (..., 3) of ``pose`` in its parent frame."""
    return points @ rotation(pose).as_matrix().T + pose.position


def from_frame(points: np.ndarray, pose: Pose) -> np.ndarray:
    """Express parent-frame points (..., 3) in the child frame of ``pose``; the inverse of :func:`to_frame`."""
    return (points - pose.position) @ rotation(pose).as_matrix()


def scene_in_frame(scene: SceneObservation, base: Pose, covariance: np.ndarray, agent: str = "") -> SceneObservation:
    """Express ``scene`` in the frame of ``base``, which is the pose there of the frame that it came in.

    Args:
        scene: what was seen, in base_link or in the frame of a sensor.
        base: that frame in the wanted frame, for example base_link in ``map``.
        covariance: (3, 3) m^2, how well the place of ``base`` is known: added to that of every object.
        agent: the robot whose base_link ``base`` is; empty = it is no robot's.
    """
    turn = rotation(base)
    matrix_ = turn.as_matrix()

    def carried(pose: Pose) -> Pose:
        return make_pose(to_frame(pose.position, base), turn * rotation(pose), base.frame)

    def spread(seen: DetectedObject) -> np.ndarray:
        own = POSITION_SIGMA_M**2 * np.eye(3) if seen.position_covariance is None else seen.position_covariance
        return matrix_ @ own @ matrix_.T + covariance

    objects = tuple(replace(seen, pose=carried(seen.pose), position_covariance=spread(seen)) for seen in scene.objects)
    hand = None if scene.hand is None else replace(scene.hand, pose=carried(scene.hand.pose))
    body = Body(base, agent) if agent else None
    return replace(scene, objects=objects, camera_pose=carried(scene.camera_pose), hand=hand, body=body)
