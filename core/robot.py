"""What the rest of Engram must know of a robot arm: names, limits, home, workspace, cameras, simulated model, table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engram.core.camera import CameraConfig
from engram.core.collision import USUAL_DISTANCES, CollisionConfig
from engram.core.errors import InvalidInputError, unknown_name
from engram.core.types import Embodiment


@dataclass(frozen=True)
class TableConfig:
    """Where the tasks take place and how large their things are, relative to how the tasks were laid out.

    The tasks are laid out for an arm that reaches 0.8 m: 4 cm cubes 0.4 to 0.66 m in front of the base.
    A point (x, y) of that layout lies at ``origin + scale * (x, y)`` in base_link, and every length is scaled alike.
    """

    scale: float = 1.0
    origin: tuple[float, float] = (0.0, 0.0)  # m, base_link

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise InvalidInputError(f"TableConfig.scale: {self.scale}, expected a number above 0")

    def place(self, points: np.ndarray | Sequence[float]) -> np.ndarray:
        """Return where ``points`` (..., 2 or 3) m of the layout lie in base_link [m]."""
        points = np.asarray(points, np.float64)
        return np.array((*self.origin, 0.0))[: points.shape[-1]] + self.scale * points


FULL_SIZE_TABLE = TableConfig()


_NUMBERS = (
    *("position_min", "position_max", "velocity_max", "acceleration_max", "home", "gripper_open", "gripper_closed"),
    *("gripper_velocity_max", "jerk_max", "workspace_min", "workspace_max", "reach_m", "payload_kg", "servo_lead_s"),
)


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
    cameras: tuple[CameraConfig, ...] = ()
    perception_camera: str = ""
    """Camera that perception and memory look through; empty: the first of ``cameras``."""
    kinematics: str = ""
    """``package.module:attribute``, called with this configuration; gives the arm's Kinematics. Empty: those of the
    simulated model."""
    model: str = ""
    """``package.module:attribute``, called with a render profile and this configuration; gives the MuJoCo spec of the
    arm: see :func:`engram.sim.robots.model.robot_spec`. Empty: the robot cannot be simulated."""
    tool_site: str = "tool"
    """Site of the model between the finger tips, its z axis along the fingers."""
    hand_link: str = ""
    """Body of the model that carries the fingers."""
    jerk_max: tuple[float, ...] = ()  # rad/s^3; empty = not limited
    servo_lead_s: float = 0.0
    """How far the simulated servos trail a moving target; their set points run ahead by so much [s]."""
    table: TableConfig = FULL_SIZE_TABLE
    collision: CollisionConfig | None = USUAL_DISTANCES
    """How far it stays away from itself, the table and obstacles; None: nothing checks that."""
    barrier: str = ""
    """``package.module:attribute``, called with this configuration; gives the MotionBarrier that keeps ``collision``.
    Empty: the one that knows the shapes of the simulated model, if there is one."""

    def __post_init__(self) -> None:
        n = len(self.arm_joints)
        if n == 0 or len(set(self.joint_names)) < n + 1 or not all((self.name, *self.joint_names)):
            raise InvalidInputError(f"RobotConfig.arm_joints: {self.joint_names}, expected one or more, each name once")
        for name in _NUMBERS:
            if not np.isfinite(np.asarray(getattr(self, name), np.float64)).all():
                raise InvalidInputError(f"RobotConfig.{name}: {getattr(self, name)}, expected finite numbers")
        for name in ("velocity_max", "acceleration_max", "jerk_max", "gripper_velocity_max"):
            if not (np.asarray(getattr(self, name)) > 0).all():
                raise InvalidInputError(f"RobotConfig.{name}: {getattr(self, name)}, expected numbers above 0")
        if self.gripper_open == self.gripper_closed:
            raise InvalidInputError(f"RobotConfig.gripper_open: {self.gripper_open}, the same as gripper_closed")
        for name in ("workspace_min", "workspace_max"):
            if len(getattr(self, name)) != 3:
                raise InvalidInputError(f"RobotConfig.{name}: {getattr(self, name)}, expected x, y, z")
        lengths = ("position_min", "position_max", "velocity_max", "acceleration_max", "home")
        for name in (*lengths, "jerk_max") if self.jerk_max else lengths:
            if len(getattr(self, name)) != n:
                raise InvalidInputError(f"RobotConfig.{name}: {len(getattr(self, name))} values for {n} joints")
        for name in ("position", "workspace"):
            low, high = np.asarray(getattr(self, f"{name}_min")), np.asarray(getattr(self, f"{name}_max"))
            if not (low < high).all():
                raise InvalidInputError(f"RobotConfig.{name}_min: {low.tolist()} is not below {high.tolist()}")
        if not (np.less_equal(self.position_min, self.home) & np.less_equal(self.home, self.position_max)).all():
            raise InvalidInputError(f"RobotConfig.home: {self.home}, expected within position_min and position_max")
        names = self.camera_names
        if len(set(names)) < len(names):
            raise InvalidInputError(f"RobotConfig.cameras: {', '.join(names)}: a name twice")
        if self.perception_camera and self.perception_camera not in names:
            raise unknown_name("RobotConfig.perception_camera", self.perception_camera, names)
        if names and not self.perception_camera:
            object.__setattr__(self, "perception_camera", names[0])

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Arm joints, then the gripper joint: the order of JointState and JointCommand."""
        return (*self.arm_joints, self.gripper_joint)

    @property
    def camera_names(self) -> tuple[str, ...]:
        """Names of the cameras, in their order."""
        return tuple(camera.name for camera in self.cameras)

    @property
    def has_kinematics(self) -> bool:
        """Whether it is known where the tool is for given joint positions."""
        return bool(self.kinematics or self.model)

    @property
    def state_dim(self) -> int:
        """Numbers in the policy's state vector: see :func:`engram.core.control.proprioception`."""
        return 8 + len(self.arm_joints)

    def camera(self, name: str) -> CameraConfig:
        """Return the camera called ``name``; raises UnknownNameError with those there are."""
        for camera in self.cameras:
            if camera.name == name:
                return camera
        raise unknown_name(f"camera of robot {self.name}", name, self.camera_names)

    def chosen_cameras(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return ``names``, or all of the robot's cameras where it is ``("",)``, as a parameter says "not given"."""
        return self.camera_names if names == ("",) else names

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


_WRIST_TILT_RAD = np.deg2rad(32.0)

PANDA_2F85 = RobotConfig(
    name="panda_2f85",
    arm_joints=tuple(f"joint{i}" for i in range(1, 8)),
    gripper_joint="gripper",
    position_min=(-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973),
    position_max=(2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973),
    velocity_max=(2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61),
    acceleration_max=(15.0, 7.5, 10.0, 12.5, 15.0, 20.0, 20.0),
    jerk_max=(7500.0, 3750.0, 5000.0, 6250.0, 7500.0, 10000.0, 10000.0),
    home=(0.0, -0.35, 0.0, -2.35, 0.0, 2.0, 0.785),
    gripper_open=0.0,
    gripper_closed=0.8,
    gripper_velocity_max=8.0,
    workspace_min=(0.20, -0.45, 0.005),
    workspace_max=(0.80, 0.45, 0.65),
    reach_m=0.855,
    payload_kg=2.0,
    gripper_opening_m=0.085,
    cameras=(
        CameraConfig.looking_at("front", (1.02, 0.0, 0.78), (0.50, 0.0, 0.06), fovy_deg=42.0),
        CameraConfig(
            "wrist",
            (-0.13, 0.0, 0.04),
            right=(0.0, 1.0, 0.0),
            up=(float(np.cos(_WRIST_TILT_RAD)), 0.0, -float(np.sin(_WRIST_TILT_RAD))),  # tilted to the finger tips
            fovy_deg=75.0,
            frame="base",
        ),
    ),
    model="engram.sim.robots.panda:panda_spec",
    hand_link="base",
    servo_lead_s=0.0135,
)
"""Franka Emika Panda (limits, reach, 3 kg payload less 1 kg of hand: Franka datasheet) with a Robotiq 2F-85, as the
gym-hil wheel ships it; its hand's link is called ``base``. ``front`` looks back at the robot over the whole workspace,
``wrist`` along the fingers."""
