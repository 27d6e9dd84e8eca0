"""What a person who drives the robot wants, by the keys of a terminal or by a LeRobot teleoperator. No ROS."""

from __future__ import annotations

import getpass
import os
import re
import select
import sys
import termios
import time
import tty
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from engram.core.errors import InvalidInputError
from engram.core.robot import RobotConfig
from engram.core.types import ActionSpace
from engram.runtime.motor_units import MotorUnits

STOP, SUCCEEDED, FAILED, QUIT = "stop", "succeeded", "failed", "quit"
TAP_S = 0.15
"""A key that was pressed moves the tool for so long; a terminal repeats a key that is held [s]."""
KEYS = {
    "w": (0, 1.0), "s": (0, -1.0), "a": (1, 1.0), "d": (1, -1.0), "r": (2, 1.0), "f": (2, -1.0),
    "u": (3, 1.0), "o": (3, -1.0), "i": (4, 1.0), "k": (4, -1.0), "j": (5, 1.0), "l": (5, -1.0),
}  # fmt: skip
"""Key -> which of the tool's six motions (translation, rotation about the axes of base_link), and its sign."""
ARROWS = {"\x1b[A": "w", "\x1b[B": "s", "\x1b[D": "a", "\x1b[C": "d"}
HELP = """\
  w s  forward, back       u o  roll          space      take over, hand back to the policy
  a d  left, right         i k  pitch         enter      the goal is done     backspace  it went wrong
  r f  up, down            j l  yaw           escape     STOP (engram release lets the robot move again)
  g    close or open the gripper              q          hand back, and leave"""
OPEN, CLOSED = -1.0, 1.0


@dataclass(frozen=True)
class Seen:
    """The robot as it is now."""

    positions: np.ndarray  # (n,) rad, measured, the gripper's last
    gripper: float  # as it was last commanded: -1 open, 1 closed
    halted: bool = False
    """It is stopped, or nothing is heard of its joints: what is commanded is not carried out."""
    stamp_ns: int = 0
    """When ``positions`` was measured."""
    held: bool = False
    """The goal waits while the safety node holds the arm."""


@dataclass(frozen=True)
class Wish:
    """What the person wants now."""

    drives: bool
    space: ActionSpace = "ee_delta"
    action: np.ndarray | None = None  # (7,) or (n,); None while the person does not drive
    said: tuple[str, ...] = ()
    note: str = ""
    """Why the device does not drive though the person wants to; empty: it does."""


class TeleopDevice(ABC):
    """Something that a person drives with."""

    @abstractmethod
    def read(self, seen: Seen) -> Wish:
        """Return what the person wants now.

        Raises:
            InvalidInputError: the device says something that drives no robot.
            Exception: the device is gone.
        """

    def close(self) -> None:  # noqa: B027
        """Let go of the device."""


class Keys:
    """What the keys of a terminal mean: motions, who drives, and what was said.

    Args:
        read: returns the characters that were typed since the last call.
        moves: a key of motion takes over; otherwise the space bar alone does.
        clock: tells the time [s].
    """

    def __init__(
        self, read: Callable[[], str], *, moves: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read, self._moves, self._clock = read, moves, clock
        self._pressed: dict[str, float] = {}  # key of motion -> when [s]
        self.drives = False

    def set_driving(self, drives: bool) -> None:
        """Take over, or hand back, as a button says: unlike the space bar's word, it stays true if it is said twice."""
        self.drives = drives

    def take(self) -> tuple[np.ndarray, bool, tuple[str, ...]]:
        """Return the motion (6,) in [-1, 1], whether the gripper is to close or open, and what was said."""
        said: list[str] = []
        turned = False
        for key in _split(self._read()):
            if key in KEYS and self._moves:
                self._pressed[key], self.drives = self._clock(), True
            elif key == "g" and self._moves:
                turned, self.drives = not turned, True
            elif key == " ":
                self.drives = not self.drives
            elif key in _WORDS:
                self.drives = False
                said.append(_WORDS[key])
        motion = np.zeros(6)
        for key, at in self._pressed.items():
            if self._clock() - at <= TAP_S:
                motion[KEYS[key][0]] += KEYS[key][1]
        return motion, turned, tuple(said)


_WORDS = {"\n": SUCCEEDED, "\r": SUCCEEDED, "\x7f": FAILED, "\b": FAILED, "\x1b": STOP, "q": QUIT}


_SEQUENCE = re.compile(r"\x1b(?:\[\[?[0-9;?]*[ -/]*[@-~]|O.)")
"""What a terminal sends for one key that has no character: an arrow, a function key, either with Ctrl or Shift."""


def _split(typed: str) -> list[str]:
    """Return the keys of ``typed``: an arrow is one, and a lone escape is; other keys without a character are none."""
    keys: list[str] = []
    while typed:
        sequence = _SEQUENCE.match(typed)
        key = sequence[0] if sequence else typed[0]
        typed = typed[len(key) :]
        if not sequence or key.replace("\x1bO", "\x1b[") in ARROWS:
            keys.append(ARROWS.get(key.replace("\x1bO", "\x1b["), key).lower())
    return keys


class Keyboard(TeleopDevice):
    """The keys of a terminal move the tool, ``speed`` of a full action at a time."""

    def __init__(self, keys: Keys, speed: float) -> None:
        self._keys, self._speed = keys, speed
        self._gripper: float | None = None  # as the person wants it; None: as it was

    def read(self, seen: Seen) -> Wish:
        """Return what the keys say."""
        motion, turned, said = self._keys.take()
        if not self._keys.drives:
            self._gripper = None
            return Wish(False, said=said)
        gripper = seen.gripper if self._gripper is None else self._gripper
        if turned:
            gripper = OPEN if gripper > 0.0 else CLOSED
        self._gripper = gripper
        return Wish(True, "ee_delta", np.append(self._speed * motion, gripper), said)


class LeRobotDevice(TeleopDevice):
    """A LeRobot ``Teleoperator``: a gamepad that says how the tool moves, or a leader arm that says where joints are.

    One that tells events (a gamepad's shoulder button) says itself when the person drives. With any other the space bar
    does, and a leader arm takes over only where it stands as the robot does.

    Args:
        teleoperator: LeRobot's; it is connected here if it is not.
        robot: which is driven.
        keys: of the terminal.
        speed: share of a full action for a gamepad's full deflection.
        units: gives the units of a leader arm's motors, by what it says; not asked for any other device.
        align_rad: how far a joint of the leader may stand from the robot's when it takes over.

    Raises:
        InvalidInputError: it says neither, or cannot be connected.
    """

    def __init__(
        self,
        teleoperator: Any,
        robot: RobotConfig,
        keys: Keys,
        *,
        speed: float,
        units: Callable[[Any], MotorUnits],
        align_rad: float,
    ) -> None:
        self._device, self._robot, self._keys = teleoperator, robot, keys
        self._speed, self._align_rad = speed, align_rad
        try:
            features = set(_names(teleoperator.action_features))
        except Exception as error:
            raise InvalidInputError(f"teleoperator {teleoperator.name}: it does not say what it tells") from error
        if not ({"delta_x", "delta_y", "delta_z"} <= features or any(name.endswith(".pos") for name in features)):
            raise InvalidInputError(
                f"teleoperator {teleoperator.name}: it says {', '.join(sorted(features)) or 'nothing'}, expected "
                "delta_x, delta_y and delta_z of the tool, or <motor>.pos of each joint"
            )
        self._units = None if "delta_x" in features else units(features)
        self._gripper: float | None = None
        self._aligned = False
        self._told: set[str] = set()
        try:
            if not teleoperator.is_connected:
                teleoperator.connect()
        except Exception as error:
            raise InvalidInputError(f"teleoperator {teleoperator.name}: cannot be connected: {error}") from error

    def read(self, seen: Seen) -> Wish:
        """Return what the device and the terminal's keys say."""
        _, _, said = self._keys.take()
        action = self._device.get_action()
        wants = self._keys.drives
        if hasattr(self._device, "get_teleop_events"):
            told = self._device.get_teleop_events()
            wants, more = self._events({event.value: on for event, on in told.items()})
            said += more
        if not wants:
            self._gripper, self._aligned = None, False
            return Wish(False, said=said)
        if self._units is None:
            return Wish(True, "ee_delta", self._motion(action, seen), said)
        positions = self._units.positions(action)
        if note := self._far(positions, seen):
            return Wish(False, said=said, note=note)
        return Wish(True, "joint_position", positions, said)

    def _events(self, events: dict[str, Any]) -> tuple[bool, tuple[str, ...]]:
        """Return whether the person drives by ``events``, and what is said now and was not a moment before."""
        now = set()
        if events.get("success"):
            now.add(SUCCEEDED)
        elif events.get("failure") or events.get("terminate_episode"):
            now.add(FAILED)
        new, self._told = now - self._told, now
        return bool(events.get("is_intervention")), tuple(sorted(new))

    def _motion(self, action: dict[str, Any], seen: Seen) -> np.ndarray:
        moved = [float(action[f"delta_{axis}"]) for axis in "xyz"]
        wanted = {0: CLOSED, 2: OPEN}.get(int(action.get("gripper", 1)))  # LeRobot: close, stay, open
        self._gripper = wanted if wanted is not None else seen.gripper if self._gripper is None else self._gripper
        return np.concatenate((np.clip(self._speed * np.array(moved), -1.0, 1.0), np.zeros(3), [self._gripper]))

    def _far(self, positions: np.ndarray, seen: Seen) -> str:
        """Return which joint keeps the leader from taking over; empty: none does, or it drives already."""
        away = np.abs(positions - seen.positions)[:-1]
        worst = int(np.argmax(away))
        if not self._aligned and away[worst] > self._align_rad:
            name = self._robot.joint_names[worst]
            return f"{name} is {away[worst]:.2f} rad from the robot's: move the leader there"
        self._aligned = True
        return ""

    def close(self) -> None:
        """Disconnect."""
        if self._device.is_connected:
            self._device.disconnect()


def _names(features: dict[str, Any]) -> list[str]:
    """Return what a LeRobot teleoperator says; its classes write that in two ways."""
    names = features.get("names")
    return list(names) if isinstance(names, dict | list | tuple) else [str(name) for name in features]


class Terminal:
    """The terminal's keys one at a time, unechoed, from :meth:`begin` to :meth:`close`.

    Raises:
        InvalidInputError: standard input is no terminal.
    """

    def __init__(self) -> None:
        if not sys.stdin.isatty():
            raise InvalidInputError("standard input is no terminal: a person takes over and hands back by its keys")
        self._file = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._file)

    def begin(self) -> None:
        """Take keys from now on; until then a device may ask in lines, as for its calibration."""
        tty.setcbreak(self._file)

    def read(self) -> str:
        """Return what was typed since the last call."""
        typed = b""
        while select.select([self._file], [], [], 0.0)[0]:
            more = os.read(self._file, 1024)
            if not more:
                return "q"  # the terminal is gone
            typed += more
        return typed.decode(errors="replace")

    def close(self) -> None:
        """Leave the terminal as it was."""
        termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)


def operator() -> str:
    """Return who is at the terminal."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return "operator"
