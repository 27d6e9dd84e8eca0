"""Measurements of cameras and joints at one instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from engram.core.arrays import checked
from engram.core.errors import InvalidInputError, unknown_name
from engram.core.types.basics import set_fields
from engram.core.words import check_frame


@dataclass(frozen=True, slots=True)
class Pose:
    """A rigid transform of a child frame in ``frame``."""

    position: np.ndarray  # (3,) m
    quaternion: np.ndarray = field(default_factory=lambda: np.array([1.0, 0.0, 0.0, 0.0]))  # (4,) w x y z, unit
    frame: str = "base_link"

    def __post_init__(self) -> None:
        quaternion = checked("Pose.quaternion", self.quaternion, (4,))
        norm = float(np.linalg.norm(quaternion))
        if abs(norm - 1.0) > 1e-3:
            raise InvalidInputError(f"Pose.quaternion: norm {norm:.4f}, expected 1")
        check_frame("Pose.frame", self.frame)
        set_fields(self, position=checked("Pose.position", self.position, (3,)), quaternion=quaternion)


@dataclass(frozen=True, slots=True)
class CameraFrame:
    """One camera's picture at one instant; ``depth`` is None for a colour-only camera."""

    name: str
    stamp_ns: int
    color: np.ndarray  # (H, W, 3) uint8, rgb
    intrinsics: np.ndarray  # (3, 3) pinhole K, pixels
    pose: Pose  # optical frame in base_link
    depth: np.ndarray | None = None  # (H, W) float32, m; 0 or NaN = no return

    def __post_init__(self) -> None:
        color = checked(f"camera {self.name!r} color", self.color, (None, None, 3), np.uint8)
        set_fields(self, color=color, intrinsics=checked(f"camera {self.name!r} intrinsics", self.intrinsics, (3, 3)))
        if self.depth is not None:
            depth = checked(f"camera {self.name!r} depth", self.depth, color.shape[:2], np.float32, finite=False)
            if not np.isfinite(depth).any():
                raise InvalidInputError(f"camera {self.name!r} depth: no finite value in {depth.shape}")
            set_fields(self, depth=depth)


@dataclass(frozen=True, slots=True)
class JointState:
    """Measured joint positions and velocities, arm joints first, the gripper joint last."""

    stamp_ns: int
    names: tuple[str, ...]
    positions: np.ndarray  # (n,) rad or m
    velocities: np.ndarray  # (n,) rad/s or m/s
    held: bool = False
    """The cell holds the arm: commands that answer this state are not executed."""

    def __post_init__(self) -> None:
        n = len(self.names)
        set_fields(
            self,
            positions=checked("JointState.positions", self.positions, (n,)),
            velocities=checked("JointState.velocities", self.velocities, (n,)),
        )


@dataclass(frozen=True, slots=True)
class Observation:
    """What the robot senses at one control step."""

    stamp_ns: int
    cameras: Mapping[str, CameraFrame]
    joints: JointState

    def __post_init__(self) -> None:
        set_fields(self, cameras=MappingProxyType(dict(self.cameras)))

    def camera(self, name: str) -> CameraFrame:
        """Return the frame of camera ``name``; raises UnknownNameError with the cameras there are."""
        if name not in self.cameras:
            raise unknown_name("camera", name, self.cameras)
        return self.cameras[name]
