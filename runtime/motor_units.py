"""What a LeRobot device says of its motors, and what our joints are in radians: converted both ways."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from engram.core.errors import InvalidInputError, unknown_name
from engram.core.robot import RobotConfig

UNITS = {"rad": 1.0, "deg": np.pi / 180.0}
"""Unit of a LeRobot device's arm joints -> rad."""


class MotorUnits:
    """Converts ``<motor>.pos`` of a LeRobot device to joint positions and back.

    Args:
        config: our robot; joint i of it is ``motors[i]``, the gripper last.
        motors: the hardware's names.
        features: what the device has, ``<motor>.pos`` for each motor among it.
        gripper_open, gripper_closed: what the gripper motor says at those ends; it depends on motor and calibration.
        unit: of the arm motors' positions, rad or deg.

    Raises:
        InvalidInputError: as many motors as joints are expected, and two different ends of the gripper.
        UnknownNameError: there is no such unit, or the device has no such motor.
    """

    def __init__(
        self,
        config: RobotConfig,
        motors: tuple[str, ...],
        features: Collection[str],
        *,
        gripper_open: float,
        gripper_closed: float,
        unit: str = "deg",
    ) -> None:
        if unit not in UNITS:
            raise unknown_name("unit of the arm joints", unit, UNITS)
        if len(motors) != len(config.joint_names):
            raise InvalidInputError(
                f"motors {', '.join(motors)}: {len(motors)} names for the {len(config.joint_names)} joints of "
                f"{config.name}, {', '.join(config.joint_names)}"
            )
        if twice := [motor for motor in motors if motors.count(motor) > 1]:
            raise InvalidInputError(f"motors {', '.join(motors)}: {twice[0]!r} is named twice, expected one a joint")
        if gripper_open == gripper_closed or not np.isfinite((gripper_open, gripper_closed)).all():
            raise InvalidInputError(
                f"gripper_open {gripper_open:g} and gripper_closed {gripper_closed:g}: expected what the motor "
                f"{motors[-1]!r} says at its two ends (lerobot-find-joint-limits or lerobot-calibrate show it)"
            )
        for motor in motors:
            if f"{motor}.pos" not in features:
                raise unknown_name("motor of the LeRobot device", f"{motor}.pos", features)
        self._config, self._motors = config, motors
        self._scale = UNITS[unit]
        self._open, self._closed = gripper_open, gripper_closed

    def positions(self, said: Mapping[str, Any]) -> np.ndarray:
        """Return the joint positions (n,) [rad], the gripper's last, of what the device says."""
        values = np.array([float(said[f"{motor}.pos"]) for motor in self._motors])
        positions = values * self._scale
        fraction = (values[-1] - self._open) / (self._closed - self._open)
        positions[-1] = self._config.gripper_position(float(fraction))
        return positions

    def said(self, positions: np.ndarray) -> dict[str, float]:
        """Return joint ``positions`` (n,) [rad] as the device says them."""
        values = positions / self._scale
        fraction = self._config.gripper_fraction(float(positions[-1]))
        values[-1] = self._open + fraction * (self._closed - self._open)
        return {f"{motor}.pos": float(value) for motor, value in zip(self._motors, values, strict=True)}
