"""A small real LeRobot robot; LeRobot finds the class by the module's name, as it finds third-party robots."""

from dataclasses import dataclass

import numpy as np
from lerobot.robots.config import RobotConfig as LeRobotConfig
from lerobot.robots.robot import Robot

MOTORS = ("left", "up", "forth", "claw")


@LeRobotConfig.register_subclass("test_gantry")
@dataclass(kw_only=True)
class LeRobotGantryConfig(LeRobotConfig):
    """A gantry without hardware."""


class LeRobotGantry(Robot):
    """Motors in degrees, a gripper in per cent, one camera; goes where it is told."""

    config_class = LeRobotGantryConfig
    name = "test_gantry"

    def __init__(self, config=None):
        super().__init__(config or LeRobotGantryConfig(id="test"))
        self.values = dict.fromkeys(MOTORS, 0.0)
        self.connected = False

    @property
    def observation_features(self):
        return {f"{m}.pos": float for m in MOTORS} | {"front": (4, 6, 3)}

    @property
    def action_features(self):
        return {f"{m}.pos": float for m in MOTORS}

    @property
    def is_connected(self):
        return self.connected

    def connect(self, calibrate=True):
        self.connected = True

    is_calibrated = True

    def calibrate(self):
        pass

    def configure(self):
        pass

    def get_observation(self):
        return {f"{m}.pos": v for m, v in self.values.items()} | {"front": np.full((4, 6, 3), 7, np.uint8)}

    def send_action(self, action):
        self.values.update({key.removesuffix(".pos"): value for key, value in action.items()})
        return action

    def disconnect(self):
        self.connected = False
