"""LeRobot robots behind one small interface, and where they and LeRobot teleoperators are found. No ROS."""

from __future__ import annotations

import importlib
import json
import pkgutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from engram.core.errors import EngramError, InvalidInputError, unknown_name
from engram.core.registry import resolve
from engram.core.robot import RobotConfig
from engram.core.types import JointCommand, JointState
from engram.runtime.motor_units import MotorUnits


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

    if not spec.lstrip().startswith("{"):
        return resolve("LeRobot robot", spec, {}, Robot)
    import lerobot.robots
    from lerobot.robots import RobotConfig as LeRobotConfig
    from lerobot.robots.utils import make_robot_from_config

    return _from_json("robot", spec, lerobot.robots, LeRobotConfig, make_robot_from_config)


def load_teleoperator(spec: str) -> Any:
    """Return the LeRobot ``Teleoperator`` that ``spec`` describes, not yet connected; see :func:`load_lerobot`.

    Raises:
        UnknownNameError: a type that LeRobot does not have; lists those it has.
        InvalidInputError: not JSON, or fields that the type does not have.
    """
    from lerobot.teleoperators.teleoperator import Teleoperator

    if not spec.lstrip().startswith("{"):
        return resolve("LeRobot teleoperator", spec, {}, Teleoperator)
    import lerobot.teleoperators
    from lerobot.teleoperators.config import TeleoperatorConfig
    from lerobot.teleoperators.utils import make_teleoperator_from_config

    return _from_json("teleoperator", spec, lerobot.teleoperators, TeleoperatorConfig, make_teleoperator_from_config)


def _from_json(kind: str, spec: str, package: Any, config: Any, make: Callable[[Any], Any]) -> Any:
    import draccus
    from lerobot.utils.import_utils import register_third_party_plugins

    try:
        fields = json.loads(spec)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"LeRobot {kind}: not JSON: {error}") from None
    for module in pkgutil.iter_modules(package.__path__):
        if module.ispkg:  # a configuration registers its type when it is imported
            try:
                importlib.import_module(f"{package.__name__}.{module.name}")
            except ImportError:  # its hardware library is not installed: that type cannot be used from here
                continue
    register_third_party_plugins()
    known = config.get_known_choices()
    if fields.get("type") not in known:
        raise unknown_name(f"LeRobot {kind} type", fields.get("type"), known)
    try:
        return make(draccus.decode(config, fields))
    except Exception as error:
        raise InvalidInputError(f"LeRobot {kind} {spec!r}: {error}") from error


BUS_S = 1.0
"""Longest wait until a read has left the motors' bus [s]."""


class LeRobotDriver:
    """A connected LeRobot ``Robot`` that speaks joint states and joint commands.

    Args:
        robot: a LeRobot Robot whose features are ``<motor>.pos`` and camera names.
        config: our robot; joint i of it is ``motors[i]``, the gripper last.
        motors: the hardware's names.
        gripper_open, gripper_closed: what the gripper motor says at those ends; it depends on motor and calibration.
        unit: of the arm motors' positions, rad or deg.

    Raises:
        InvalidInputError: as many motors as joints are expected, and two different ends of the gripper; or the robot
            is not calibrated.
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
        self._units = MotorUnits(
            config,
            motors,
            robot.action_features,
            gripper_open=gripper_open,
            gripper_closed=gripper_closed,
            unit=unit,
        )
        self.robot, self.config = robot, config
        self._bus = threading.Lock()  # one thread reads, another one writes; the motors' bus takes one at a time
        self._last: JointState | None = None
        if not robot.is_connected:
            robot.connect(calibrate=False)  # calibrating asks a person at the terminal, which a node has none of
        if not robot.is_calibrated:
            robot.disconnect()
            raise InvalidInputError(
                f"LeRobot robot {robot.name!r}, id {robot.id!r}: not calibrated, or its motors hold another "
                f"calibration than {robot.calibration_fpath}; run lerobot-calibrate for this type and id"
            )

    def read(self, stamp_ns: int) -> tuple[JointState, dict[str, np.ndarray]]:
        """Return joints (velocities by difference to the last call) and camera images (H, W, 3) uint8 rgb."""
        with self._bus:
            raw: Mapping[str, Any] = self.robot.get_observation()
        positions = self._units.positions(raw)
        velocities = np.zeros_like(positions)
        if self._last is not None and stamp_ns > self._last.stamp_ns:
            velocities = (positions - self._last.positions) / ((stamp_ns - self._last.stamp_ns) / 1e9)
        self._last = JointState(stamp_ns, self.config.joint_names, positions, velocities)
        images = {key: np.asarray(value) for key, value in raw.items() if getattr(value, "ndim", 0) == 3}
        return self._last, images

    def write(self, command: JointCommand) -> None:
        """Send joint targets."""
        with self._bus_within(BUS_S):
            self.robot.send_action(self._units.said(command.positions))

    def close(self) -> None:
        """Disconnect. Whether the motors lose torque is a setting of the LeRobot robot."""
        with self._bus_within(BUS_S):
            if self.robot.is_connected:
                self.robot.disconnect()

    @contextmanager
    def _bus_within(self, longest_s: float) -> Iterator[None]:
        if not self._bus.acquire(timeout=longest_s):
            raise EngramError(f"the robot's bus was not free within {longest_s:g} s: reading from it hangs")
        try:
            yield
        finally:
            self._bus.release()
