"""What the rest of Engram must know of a robot arm: names, limits, home, workspace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engram.core.errors import InvalidInputError
from engram.core.types import Embodiment


@dataclass(frozen=True)
class RobotConfig:
    """A serial arm with a one-joint gripper; all tuples are in the order of ``arm_joints``."""

    name: str
    arm_joints: tuple[str, ...]
    gripper_joint: str
    position_min: tuple[float, ...]  # rad
    position_max: tuple[float, ...]  # rad
    velocity_max: tuple[float, ...]  # rad/s
    acceleration_max: tuple[float, ...]  # rad/s^2
    home: tuple[float, ...]  # rad
    gripper_open: float  # gripper joint position when open
    gripper_closed: float  # gripper joint position when fully closed
    gripper_velocity_max: float  # gripper units per second
    workspace_min: tuple[float, float, float]  # m, base_link, of the tool point
    workspace_max: tuple[float, float, float]  # m
    kind: str = "arm"  # kinematic type, for its embodiment profile; what follows: 0 = not known
    reach_m: float = 0.0  # from base_link to the tool point, at most
    payload_kg: float = 0.0
    gripper_opening_m: float = 0.0
    mobile_base: bool = False
    kinematics: str = ""  # package.module:attribute, called with this config; gives the arm's Kinematics

    def __post_init__(self) -> None:
        n = len(self.arm_joints)
        for name in ("position_min", "position_max", "velocity_max", "acceleration_max", "home"):
            if len(getattr(self, name)) != n:
                raise InvalidInputError(f"RobotConfig.{name}: {len(getattr(self, name))} values for {n} joints")
        for name in ("position", "workspace"):
            low, high = np.asarray(getattr(self, f"{name}_min")), np.asarray(getattr(self, f"{name}_max"))
            if not (low < high).all():
                raise InvalidInputError(f"RobotConfig.{name}_min: {low.tolist()} is not below {high.tolist()}")

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Arm joints, then the gripper joint: the order of JointState and JointCommand."""
        return (*self.arm_joints, self.gripper_joint)

    def embodiment(self, sensors: tuple[str, ...] = ()) -> Embodiment:
        """Return the robot's profile, with the names of its ``sensors``."""
        return Embodiment(
            self.kind, len(self.arm_joints), self.reach_m, self.payload_kg, self.gripper_opening_m, self.mobile_base,
            sensors,
        )  # fmt: skip

    def gripper_fraction(self, position: float) -> float:
        """Map a gripper joint position to 0 (open) .. 1 (closed)."""
        span = self.gripper_closed - self.gripper_open
        return float(np.clip((position - self.gripper_open) / span, 0.0, 1.0))

    def gripper_position(self, fraction: float) -> float:
        """Map 0 (open) .. 1 (closed) to a gripper joint position."""
        return self.gripper_open + float(np.clip(fraction, 0.0, 1.0)) * (self.gripper_closed - self.gripper_open)


PANDA_2F85 = RobotConfig(
    name="panda_2f85",
    arm_joints=tuple(f"joint{i}" for i in range(1, 8)),
    gripper_joint="gripper",
    position_min=(-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973),
    position_max=(2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973),
    velocity_max=(2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61),
    acceleration_max=(15.0, 7.5, 10.0, 12.5, 15.0, 20.0, 20.0),
    home=(0.0, -0.35, 0.0, -2.35, 0.0, 2.0, 0.785),
    gripper_open=0.0,
    gripper_closed=0.8,
    gripper_velocity_max=8.0,
    workspace_min=(0.20, -0.45, 0.005),
    workspace_max=(0.80, 0.45, 0.65),
    reach_m=0.855,
    payload_kg=2.0,
    gripper_opening_m=0.085,
    kinematics="engram.sim.robots.panda_kinematics:PandaKinematics",
)
"""Franka Emika Panda (limits, reach, 3 kg payload less 1 kg of hand: Franka datasheet) with a Robotiq 2F-85, as the
gym-hil wheel ships it."""
