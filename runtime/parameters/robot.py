"""Parameters of the robot node."""

from __future__ import annotations

from dataclasses import dataclass

from engram.runtime.parameters import BoundNodeConfig, param


@dataclass(frozen=True)
class RobotNodeConfig(BoundNodeConfig):
    """Parameters of the robot node."""

    driver: str = param("ros2_control", choices=("ros2_control", "lerobot", "twin"))
    """What the hardware speaks; twin: ros2_control, with the joint names of the robot."""
    robot: str = "panda_2f85"
    """Robot that the hardware is."""
    hardware_joints: tuple[str, ...] = ("",)
    """The hardware's joint or motor names in the order of the robot's joints, gripper last; [""]: the same names."""
    control_dt_s: float = param(0.1, 0.01, 1.0)
    """Length of one control step, which every command must have as its duration [s]."""
    velocity_fraction: float = param(1.0, 0.01, 1.0)
    """Share of the arm's velocity limits beyond which no command is executed; not less than that of the safety node."""
    acceleration_fraction: float = param(1.0, 0.01, 1.0)
    """Share of its acceleration limits by which a control step may differ from the one before; as velocity_fraction."""
    stale_after_s: float = param(0.5, 0.05, 60.0)
    """A command for a step that began longer ago than this is not executed; the robot holds [s]."""
    silent_after_s: float = param(0.5, 0.05, 60.0)
    """Report hardware that said nothing for this long [s]."""
    lerobot: str = ""
    """LeRobot robot: a JSON object as LeRobot's commands take it, or package.module:attribute."""
    unit: str = param("deg", choices=("deg", "rad"))
    """Unit of a LeRobot robot's arm motors."""
    gripper_open: float = 0.0
    """What a LeRobot gripper motor says when open. It depends on the calibration: both ends must be set."""
    gripper_closed: float = 0.0
    """What a LeRobot gripper motor says when closed."""
    rate_hz: float = param(30.0, 1.0, 1000.0)
    """How often a LeRobot robot is read [Hz]."""
    cameras: tuple[str, ...] = ("",)
    """LeRobot cameras to publish; [""]: all of them."""
    calibrated: bool = False
    """The robot's cameras are where its configuration says, and see as it says: publish that as tf and, with LeRobot,
    as camera_info. Off: other nodes must publish it."""
