from tests.contracts.kinematics import KinematicsContract
from tests.core.gantry import GANTRY, GantryKinematics


class TestGantryKinematics(KinematicsContract):
    def make(self):
        return _Clipped(), GANTRY


class _Clipped(GantryKinematics):
    def inverse(self, target, start):
        return super().inverse(target, start).clip(GANTRY.position_min, GANTRY.position_max)
