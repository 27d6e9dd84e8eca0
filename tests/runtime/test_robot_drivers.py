"""A LeRobot robot behind our joint states and commands: names, units and gripper range, by hand."""

from threading import Event, Thread

import numpy as np
import pytest
from lerobot.robots.robot import Robot

from engram.core.errors import EngramError, InvalidInputError, UnknownNameError
from engram.core.types import JointCommand
from engram.runtime import robot_drivers
from engram.runtime.robot_drivers import LeRobotDriver, load_lerobot
from tests.core.gantry import GANTRY
from tests.runtime.lerobotgantry import MOTORS, LeRobotGantry

GRIPPER = {"gripper_open": 100.0, "gripper_closed": 0.0}


def test_degrees_and_gripper_range_go_both_ways():
    driver = LeRobotDriver(LeRobotGantry(), GANTRY, MOTORS, **GRIPPER)
    driver.write(JointCommand(0, GANTRY.joint_names, np.array([np.pi / 2, 0.0, -np.pi, 0.8]), 0.1))
    assert driver.robot.values == pytest.approx({"left": 90.0, "up": 0.0, "forth": -180.0, "claw": 0.0})
    joints, images = driver.read(10**9)
    assert joints.positions == pytest.approx([np.pi / 2, 0.0, -np.pi, 0.8])
    assert joints.velocities.tolist() == [0.0] * 4
    assert images["front"].shape == (4, 6, 3)


def test_velocity_is_the_difference_over_time():
    driver = LeRobotDriver(LeRobotGantry(), GANTRY, MOTORS, unit="rad", **GRIPPER)
    driver.read(0)
    driver.robot.values["left"] = 0.2
    assert driver.read(500_000_000)[0].velocities[0] == pytest.approx(0.4)


def test_one_thread_at_a_time_uses_the_bus_and_a_read_that_hangs_is_named(monkeypatch):
    monkeypatch.setattr(robot_drivers, "BUS_S", 0.05)
    driver, reading, goes_on = LeRobotDriver(LeRobotGantry(), GANTRY, MOTORS, **GRIPPER), Event(), Event()
    observe = driver.robot.get_observation

    def slow():
        reading.set()
        assert goes_on.wait(10)
        return observe()

    driver.robot.get_observation = slow
    reader = Thread(target=driver.read, args=(0,))
    reader.start()
    assert reading.wait(10)
    command = JointCommand(0, GANTRY.joint_names, np.zeros(4), 0.1)
    with pytest.raises(EngramError, match="bus was not free within"):
        driver.write(command)
    goes_on.set()
    reader.join(10)
    driver.write(command)


def test_it_connects_and_disconnects():
    driver = LeRobotDriver(LeRobotGantry(), GANTRY, MOTORS, **GRIPPER)
    assert driver.robot.is_connected
    driver.close()
    assert not driver.robot.is_connected


class UncalibratedGantry(LeRobotGantry):
    is_calibrated = False

    def connect(self, calibrate=True):
        assert not calibrate, "it would ask for keys, inside a node"
        super().connect()


def test_a_robot_that_is_not_calibrated_is_refused_and_let_go():
    gantry = UncalibratedGantry()
    with pytest.raises(InvalidInputError, match=r"robot 'test_gantry', id 'test': not calibrated.*lerobot-calibrate"):
        LeRobotDriver(gantry, GANTRY, MOTORS, **GRIPPER)
    assert not gantry.is_connected


def test_a_factory_and_what_is_not_a_robot():
    assert isinstance(load_lerobot("tests.runtime.lerobotgantry:LeRobotGantry"), Robot)
    with pytest.raises(InvalidInputError, match="LeRobot robot 'builtins:dict' is the class dict, expected a Robot"):
        load_lerobot("builtins:dict")


def test_registered_types_are_built_from_json_as_lerobots_commands_do():
    robot = load_lerobot('{"type": "test_gantry", "id": "x"}')
    assert (type(robot).__name__, robot.id) == ("LeRobotGantry", "x")
    with pytest.raises(UnknownNameError, match=r"unknown LeRobot robot type 'so102_follower'.*so101_follower"):
        load_lerobot('{"type": "so102_follower"}')


def test_a_motor_that_is_not_there_is_named():
    with pytest.raises(UnknownNameError, match=r"unknown motor of the LeRobot device 'lift\.pos'.*left\.pos"):
        LeRobotDriver(LeRobotGantry(), GANTRY, ("left", "lift", "forth", "claw"), **GRIPPER)


@pytest.mark.parametrize("closed", [100.0, float("nan")])
def test_a_gripper_whose_ends_are_not_told_is_not_moved(closed):
    with pytest.raises(InvalidInputError, match=r"gripper_open 100 and gripper_closed .*'claw' says at its two ends"):
        LeRobotDriver(LeRobotGantry(), GANTRY, MOTORS, gripper_open=100.0, gripper_closed=closed)


def test_a_robot_that_is_not_named_is_an_error_that_names_the_parameter():
    with pytest.raises(InvalidInputError, match=r"parameter 'lerobot' is empty: .*so101_follower"):
        load_lerobot("")
