"""Small real LeRobot teleoperators without hardware; LeRobot finds the leader by the module's name."""

import os
from dataclasses import dataclass

from lerobot.teleoperators.config import TeleoperatorConfig
from lerobot.teleoperators.teleoperator import Teleoperator

from tests.runtime.lerobotgantry import MOTORS

UNPLUG = "ENGRAM_TEST_UNPLUG"


@TeleoperatorConfig.register_subclass("test_leader")
@dataclass(kw_only=True)
class LeRobotLeaderConfig(TeleoperatorConfig):
    """A leader arm without hardware."""


class LeRobotLeader(Teleoperator):
    """Motors in degrees, a gripper in per cent, moved by whoever sets ``values``."""

    config_class = LeRobotLeaderConfig
    name = "test_leader"

    def __init__(self, config=None):
        super().__init__(config or LeRobotLeaderConfig(id="test"))
        self.values = dict.fromkeys(MOTORS, 0.0)
        self.connected = False

    @property
    def action_features(self):
        return {f"{m}.pos": float for m in MOTORS}

    is_calibrated = True

    @property
    def feedback_features(self):
        return {}

    @property
    def is_connected(self):
        return self.connected

    def connect(self, calibrate=True):
        self.connected = True

    def calibrate(self):
        pass

    def configure(self):
        pass

    def get_action(self):
        return {f"{m}.pos": v for m, v in self.values.items()}

    def send_feedback(self, feedback):
        pass

    def disconnect(self):
        self.connected = False


class BreakingLeader(LeRobotLeader):
    """Is unplugged as soon as the file exists that the environment names in ``UNPLUG``."""

    def get_action(self):
        if os.path.exists(os.environ[UNPLUG]):
            raise OSError("unplugged")
        return super().get_action()
