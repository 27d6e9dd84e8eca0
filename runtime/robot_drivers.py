"""LeRobot robots behind one small interface: converts joint names and units. No ROS."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Mapping
from typing import Any

import numpy as np

from engram.core.errors import InvalidInputError, unknown_name
from engram.core.registry import resolve
from engram.core.robot import RobotConfig
from engram.core.types import JointCommand, JointState

UNITS = {"rad": 1.0, "deg": np.pi / 180.0}
"""Unit of a LeRobot robot's arm joints -> rad."""


def load_lerobot(spec: str) -> Any:
    """Return the LeRobot ``Robot`` that ``spec`` describes, not yet connected.

    Args:
        spec: ``package.module:attribute`` (a Robot, a class that needs no arguments, or a function that is annotated to
            return one), or a JSON object as LeRobot's own commands take it, such as
            ``{"type": "so101_follower", "port": "/dev/ttyACM0", "id": "left"}``.

    Raises:
        UnknownNameError: a type that LeRobot does not have; lists those it has.
        InvalidInputError: not JSON, or fields that the type does not have.
    """
    if not spec.strip():
        raise InvalidInputError(
            "parameter 'lerobot' is empty: with driver 'lerobot' it names the robot, either as a JSON object such as "
            '{"type": "so101_follower", "port": "/dev/ttyACM0", "id": "left"} or as package.module:attribute'
        )
    from lerobot.robots.robot import Robot

    return _from_json(spec) if spec.lstrip().startswith("{") else resolve("LeRobot robot", spec, {}, Robot)


def _from_json(spec: str) -> Any:
    import draccus
    import lerobot.robots
    from lerobot.robots import RobotConfig as LeRobotConfig
    from lerobot.robots.utils import make_robot_from_config
    from lerobot.utils.import_utils import register_third_party_plugins

    try:
        fields = json.loads(spec)
    except json.JSONDecodeError as error:
        raise InvalidInputError(f"lerobot: not JSON: {error}") from None
    for module in pkgutil.iter_modules(lerobot.robots.__path__):
        if module.ispkg:  # a configuration registers its type when it is imported
            try:
                importlib.import_module(f"lerobot.robots.{module.name}")
            except ImportError:  # its hardware library is not installed: that type cannot be driven from here
                continue
    register_third_party_plugins()
    known = LeRobotConfig.get_known_choices()
    if fields.get("type") not in known:
        raise unknown_name("lerobot robot type", fields.get("type"), known)
    try:
        return make_robot_from_config(draccus.decode(LeRobotConfig, fields))
    except Exception as error:
        raise InvalidInputError(f"lerobot {spec!r}: {error}") from error


class LeRobotDriver:
    """A connected LeRobot ``Robot`` that speaks joint states and joint commands.

    Args:
        robot: a LeRobot Robot whose features are ``<motor>.pos`` and camera names.
        config: our robot; joint i of it is ``motors[i]``, the gripper last.
        motors: the hardware's names.
        gripper_open, gripper_closed: what the gripper motor says at those ends; it depends on motor and calibration.
        unit: of the arm motors' positions, rad or deg.

    Raises:
        InvalidInputError: as many motors as joints are expected, and two different ends of the gripper.
        UnknownNameError: there is no such unit, or the robot has no such motor.
    """

    def __init__(
        self,
        robot: Any,
        config: RobotConfig,
        motors: tuple[str, ...],
        *,
        gripper_open: float,
        gripper_closed: float,
        unit: str = "deg",
    ) -> None:
        if unit not in UNITS:
            raise unknown_name("unit of the arm joints", unit, UNITS)
        if len(motors) != len(config.joint_names):
            raise InvalidInputError(
                f"hardware_joints: {len(motors)} names for the {len(config.joint_names)} of {config.name}"
            )
        if gripper_open == gripper_closed or not np.isfinite((gripper_open, gripper_closed)).all():
            raise InvalidInputError(
                f"gripper_open {gripper_open:g} and gripper_closed {gripper_closed:g}: expected what the motor "
                f"{motors[-1]!r} says at its two ends (lerobot-find-joint-limits or lerobot-calibrate show it)"
            )
        for motor in motors:
            if f"{motor}.pos" not in robot.action_features:
                raise unknown_name("motor of the LeRobot robot", f"{motor}.pos", robot.action_features)
        self.robot, self.config, self.motors = robot, config, motors
        self._scale = UNITS[unit]
        self._gripper = (gripper_open, gripper_closed)
        self._last: JointState | None = None
        if not robot.is_connected:
            robot.connect()

    def read(self, stamp_ns: int) -> tuple[JointState, dict[str, np.ndarray]]:
        """Return joints (velocities by difference to the last call) and camera images (H, W, 3) uint8 rgb."""
        raw: Mapping[str, Any] = self.robot.get_observation()
        values = np.array([float(raw[f"{motor}.pos"]) for motor in self.motors])
        opened, closed = self._gripper
        positions = values * self._scale
        positions[-1] = self.config.gripper_position((values[-1] - opened) / (closed - opened))
        velocities = np.zeros_like(positions)
        if self._last is not None and stamp_ns > self._last.stamp_ns:
            velocities = (positions - self._last.positions) / ((stamp_ns - self._last.stamp_ns) / 1e9)
        self._last = JointState(stamp_ns, self.config.joint_names, positions, velocities)
        images = {key: np.asarray(value) for key, value in raw.items() if getattr(value, "ndim", 0) == 3}
        return self._last, images

    def write(self, command: JointCommand) -> None:
        """Send joint targets."""
        opened, closed = self._gripper
        targets = command.positions / self._scale
        fraction = self.config.gripper_fraction(float(command.positions[-1]))
        targets[-1] = opened + fraction * (closed - opened)
        self.robot.send_action({f"{m}.pos": float(t) for m, t in zip(self.motors, targets, strict=True)})

    def close(self) -> None:
        """Disconnect. Whether the motors lose torque is a setting of the LeRobot robot."""
        if self.robot.is_connected:
            self.robot.disconnect()
