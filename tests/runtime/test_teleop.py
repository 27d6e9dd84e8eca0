"""What a person wants, by keys, by LeRobot's gamepad and by a leader arm."""

from __future__ import annotations

import numpy as np
import pytest

from engram.core.errors import InvalidInputError, UnknownNameError
from engram.runtime.motor_units import MotorUnits
from engram.runtime.robot_drivers import load_teleoperator
from engram.runtime.teleop import (
    FAILED,
    QUIT,
    STOP,
    SUCCEEDED,
    Keyboard,
    Keys,
    LeRobotDevice,
    Seen,
    Terminal,
)
from tests.core.gantry import GANTRY
from tests.runtime.lerobotgantry import MOTORS
from tests.runtime.lerobotleader import LeRobotLeader

HOLDING = Seen(np.zeros(4), 0.8)
"""A robot that holds something: its gripper was last commanded to close by so much."""


class Hand:
    """Types keys, and tells the time."""

    def __init__(self, *, moves: bool = True):
        self.typed, self.now_s = "", 10.0
        self.keys = Keys(self._read, moves=moves, clock=lambda: self.now_s)

    def _read(self) -> str:
        typed, self.typed = self.typed, ""
        return typed


def press(hand: Hand, device, keys: str, seconds: float = 0.05):
    hand.typed += keys
    hand.now_s += seconds
    return device.read(HOLDING)


def test_a_key_takes_over_moves_for_as_long_as_it_is_held_and_keeps_the_grip():
    hand = Hand()
    keyboard = Keyboard(hand.keys, 0.3)
    assert not press(hand, keyboard, "").drives
    wish = press(hand, keyboard, "w")
    assert (wish.drives, wish.space) == (True, "ee_delta")
    np.testing.assert_allclose(wish.action, [0.3, 0, 0, 0, 0, 0, 0.8])  # what the hand holds is not let go
    np.testing.assert_allclose(press(hand, keyboard, "ar").action[:3], [0.3, 0.3, 0.3])
    np.testing.assert_allclose(press(hand, keyboard, "", 0.2).action, [0, 0, 0, 0, 0, 0, 0.8])  # let go: it stands
    assert not press(hand, keyboard, " ").drives


def test_what_a_button_says_stays_true_when_it_is_pressed_twice_and_the_space_bar_toggles():
    hand = Hand()
    keyboard = Keyboard(hand.keys, 0.3)
    for drives in (True, True, False, False):
        hand.keys.set_driving(drives)
        assert press(hand, keyboard, "").drives == drives
    assert [press(hand, keyboard, keys).drives for keys in (" ", " ", "  ")] == [True, False, False]


def test_keys_without_a_character_move_nothing():
    """Ctrl+Left, Shift+Up, Shift+F2, F1 of the Linux console, Delete: what they send holds letters.

    A font's private characters, which a terminal may send, do as little.
    """
    typed = ["\x1b[1;5D\x1b[1;2A\x1b[1;2Q\x1b[[A\x1b[3~\x1bOP\ue000"]
    keys = Keys(lambda: typed.pop() if typed else "")
    motion, turned, said = keys.take()
    assert not motion.any() and not turned and not said and not keys.drives


def test_keys_turn_the_tool_and_the_gripper_and_arrows_are_keys():
    hand = Hand()
    keyboard = Keyboard(hand.keys, 1.0)
    np.testing.assert_allclose(press(hand, keyboard, "ukl").action[3:6], [1, -1, -1])
    assert press(hand, keyboard, "g", 0.2).action[-1] == -1.0  # it was closed
    assert press(hand, keyboard, "", 0.2).action[-1] == -1.0
    assert press(hand, keyboard, "g", 0.2).action[-1] == 1.0
    np.testing.assert_allclose(press(hand, keyboard, "\x1b[A\x1b[D", 0.2).action[:2], [1, 1])


@pytest.mark.parametrize(("key", "said"), [("\n", SUCCEEDED), ("\x7f", FAILED), ("\x1b", STOP), ("q", QUIT)])
def test_whoever_says_something_of_the_goal_or_stops_hands_back(key, said):
    hand = Hand()
    keyboard = Keyboard(hand.keys, 0.3)
    press(hand, keyboard, "w")
    wish = press(hand, keyboard, key)
    assert (wish.drives, wish.said) == (False, (said,))


class Unplugged(LeRobotLeader):
    def connect(self, calibrate=True):
        raise ConnectionError("no such port")


def leader(hand: Hand, arm: LeRobotLeader) -> LeRobotDevice:
    def units(features):
        return MotorUnits(GANTRY, MOTORS, features, gripper_open=100.0, gripper_closed=0.0)

    return LeRobotDevice(arm, GANTRY, hand.keys, speed=0.3, units=units, align_rad=0.3)


def test_a_motor_that_is_named_for_two_joints_is_refused():
    motors = (MOTORS[0], MOTORS[1], MOTORS[1], MOTORS[3])
    features = [f"{motor}.pos" for motor in MOTORS]
    with pytest.raises(InvalidInputError, match=f"{MOTORS[1]!r} is named twice, expected one a joint"):
        MotorUnits(GANTRY, motors, features, gripper_open=100.0, gripper_closed=0.0)


def test_a_leader_arm_takes_over_only_where_it_stands_as_the_robot_does():
    hand = Hand(moves=False)
    arm = load_teleoperator('{"type": "test_leader", "id": "x"}')
    assert isinstance(arm, LeRobotLeader)
    device = leader(hand, arm)
    arm.values |= {"up": 90.0, "claw": 100.0}
    assert not press(hand, device, "w").drives  # keys move nothing here
    wish = press(hand, device, " ")
    assert (wish.drives, wish.note) == (False, "y is 1.57 rad from the robot's: move the leader there")
    arm.values["up"] = 9.0
    wish = press(hand, device, "")
    assert (wish.drives, wish.space) == (True, "joint_position")
    np.testing.assert_allclose(wish.action, [0, np.deg2rad(9.0), 0, GANTRY.gripper_open])
    arm.values["up"] = 90.0  # from now on the robot follows
    assert press(hand, device, "").drives
    assert not press(hand, device, " ").drives


def test_lerobots_gamepad_drives_while_its_button_is_held_and_says_how_the_goal_ended():
    from lerobot.teleoperators.utils import TeleopEvents

    class Pad:
        """Stands for the hardware below LeRobot's GamepadTeleop."""

        button, end, grip = False, None, "stay"

        def update(self):
            pass

        def get_deltas(self):
            return 0.5, -1.0, 0.0

        def gripper_command(self):
            return self.grip

        def should_intervene(self):
            return self.button

        def get_episode_end_status(self):
            return self.end

        def stop(self):
            pass

    hand, teleoperator = Hand(moves=False), load_teleoperator('{"type": "gamepad"}')
    teleoperator.gamepad = pad = Pad()
    device = LeRobotDevice(teleoperator, GANTRY, hand.keys, speed=0.4, units=None, align_rad=0.3)
    assert not device.read(HOLDING).drives
    pad.button = True
    np.testing.assert_allclose(device.read(HOLDING).action, [0.2, -0.4, 0, 0, 0, 0, 0.8])
    pad.grip = "open"
    assert device.read(HOLDING).action[-1] == -1.0
    pad.grip, pad.button, pad.end = "stay", False, TeleopEvents.SUCCESS
    assert device.read(HOLDING).said == (SUCCEEDED,)
    assert device.read(HOLDING).said == ()  # the button is still down
    pad.end = TeleopEvents.FAILURE
    assert device.read(HOLDING).said == (FAILED,)


def test_a_device_that_drives_no_arm_and_one_that_is_not_there_are_named():
    with pytest.raises(UnknownNameError, match=r"unknown LeRobot teleoperator type 'so102_leader'.*so101_leader"):
        load_teleoperator('{"type": "so102_leader"}')
    with pytest.raises(InvalidInputError, match="expected a Teleoperator"):
        load_teleoperator("builtins:dict")
    with pytest.raises(InvalidInputError, match="teleoperator keyboard: it does not say what it tells"):
        LeRobotDevice(
            load_teleoperator('{"type": "keyboard"}'), GANTRY, Hand().keys, speed=0.3, units=None, align_rad=0.3
        )
    unplugged = Unplugged()
    with pytest.raises(InvalidInputError, match="teleoperator test_leader: cannot be connected: no such port"):
        leader(Hand(), unplugged)
    rover = load_teleoperator('{"type": "keyboard_rover"}')
    with pytest.raises(InvalidInputError, match=r"keyboard_rover: it says angular_velocity, linear_velocity, expected"):
        LeRobotDevice(rover, GANTRY, Hand().keys, speed=0.3, units=None, align_rad=0.3)


def test_without_a_terminal_nobody_takes_over():
    with pytest.raises(InvalidInputError, match="standard input is no terminal"):
        Terminal()
