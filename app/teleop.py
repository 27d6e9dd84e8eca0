"""``engram teleop``: a person takes over a running robot, by the keys of this terminal or by a LeRobot teleoperator."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tyro

from engram.app.options import check_asking, refuse
from engram.app.up import child_environment
from engram.core.errors import InvalidInputError
from engram.core.paths import at_home
from engram.core.registry import make_kinematics
from engram.runtime.motor_units import MotorUnits
from engram.runtime.teleop import HELP, Keyboard, Keys, LeRobotDevice, TeleopDevice, Terminal, operator

if TYPE_CHECKING:  # ROS, pandas: only for who needs them
    from engram.nodes.teleop_client import TeleopClient
    from engram.runtime.demonstration_replay import Demonstration

KEYBOARD, GAMEPAD = "keyboard", "gamepad"
OF_A_LEADER = ("motors", "gripper_open", "gripper_closed", "unit", "align_rad")
"""Settings that only a leader arm has."""


@dataclass(frozen=True)
class TeleopConfig:
    """With what a person drives, and which robot is meant."""

    device: tyro.conf.Positional[str] = KEYBOARD
    """keyboard (of this terminal), gamepad, or a LeRobot teleoperator: JSON such as
    {"type": "so101_leader", "port": "/dev/ttyACM1", "id": "left"}, or package.module:attribute of your own."""
    demonstrations: str = ""
    """Folder of a LeRobotDataset with demonstrations, as engram record writes them, in place of a device: the space bar
    replays the nearest one, moved to where the memory sees the things of the running goal's words, and hands back."""
    who: str = ""
    """Who drives, for the record; default: the user of this terminal."""
    speed: float = 0.3
    """Share of a full action (5 cm, 0.25 rad a control step) for a key, or for a gamepad's full deflection."""
    motors: tuple[str, ...] = ()
    """Motors of a leader arm, in the order of the robot's joints, the gripper last; default: named as the joints."""
    gripper_open: float = 100.0
    """What the leader's gripper motor says when it is open."""
    gripper_closed: float = 0.0
    """What it says when it is closed."""
    unit: str = "deg"
    """Of the leader's arm motors: deg or rad."""
    align_rad: float = 0.3
    """How far a joint of the leader may stand from the robot's when it takes over [rad]."""
    domain: int | None = None
    """DDS domain of the robot's nodes; default: ROS_DOMAIN_ID, else 0."""
    namespace: str = ""
    """Namespace of its nodes."""
    timeout_s: float = 10.0
    """Longest wait for the robot [s]."""

    def __post_init__(self) -> None:
        if not 0.0 < self.speed <= 1.0:
            raise InvalidInputError(f"TeleopConfig.speed: {self.speed}, expected above 0, at most 1")
        if self.demonstrations:
            refuse(self, ("device", "speed"), ": demonstrations are replayed")
        if self.device in (KEYBOARD, GAMEPAD):
            refuse(self, OF_A_LEADER, f": a {self.device} has no motors")
        if not self.align_rad > 0.0:
            raise InvalidInputError(f"TeleopConfig.align_rad: {self.align_rad}, expected above 0")


def teleop(config: TeleopConfig) -> int:
    """Let a person drive until they leave; 0 then, 1 if the device is lost."""
    check_asking(config)
    os.environ.update(child_environment(config.domain, None))  # before ROS is imported: it reads them once
    from engram.nodes.teleop_client import TeleopClient
    from engram.runtime.episode_report import LoopError

    with closing(Terminal()) as terminal:
        shown = _shown(config)
        client = TeleopClient(config.who or operator(), config.namespace, config.domain)
        with closing(client), closing(_device(config, client, shown, terminal)) as device:
            terminal.begin()
            print(HELP, file=sys.stderr)
            try:
                client.drive(device, lambda line: print(line, file=sys.stderr))
            except LoopError as error:
                print(f"engram teleop: {error}; the robot was handed back", file=sys.stderr)
                return 1
    return 0


def _shown(config: TeleopConfig) -> tuple[Demonstration, ...]:
    if not config.demonstrations:
        return ()
    from engram.runtime.demonstration_replay import read_demonstrations

    return read_demonstrations("TeleopConfig.demonstrations", at_home(config.demonstrations))


def _device(
    config: TeleopConfig, client: TeleopClient, shown: tuple[Demonstration, ...], terminal: Terminal
) -> TeleopDevice:
    robot = client.find_robot(config.timeout_s)
    if shown:
        from engram.runtime.demonstration_replay import DemonstrationReplay, ReplayDevice, check_shown_by

        check_shown_by("TeleopConfig.demonstrations", at_home(config.demonstrations), robot)
        kinematics = make_kinematics(robot)
        replay = DemonstrationReplay(shown, client.hear_scene().nodes, lambda: client.goal, kinematics, robot)
        return ReplayDevice(replay, Keys(terminal.read, moves=False))
    if config.device == KEYBOARD:
        return Keyboard(Keys(terminal.read), config.speed)
    from engram.runtime.robot_drivers import load_teleoperator

    spec = '{"type": "gamepad"}' if config.device == GAMEPAD else config.device
    return LeRobotDevice(
        load_teleoperator(spec),
        robot,
        Keys(terminal.read, moves=False),
        speed=config.speed,
        units=lambda features: MotorUnits(
            robot,
            config.motors or robot.joint_names,
            features,
            gripper_open=config.gripper_open,
            gripper_closed=config.gripper_closed,
            unit=config.unit,
        ),
        align_rad=config.align_rad,
    )
