"""Short, correlated disturbances of executed actions: what an expert must recover from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engram.core.control import ControlConfig
from engram.core.types import EE_ACTION_DIM


@dataclass(frozen=True)
class NoiseConfig:
    """How often and how far an execution is pushed off course."""

    burst_probability: float = 0.08
    """Chance per step that a burst begins while none is running."""
    burst_steps: tuple[int, int] = (2, 5)
    """Shortest and longest burst [steps]."""
    offset_m: tuple[float, float] = (0.01, 0.03)
    """How far one burst moves the tool, in a random direction [m]."""
    turn_rad: tuple[float, float] = (0.0, 0.12)
    """How far one burst turns the tool, about a random axis [rad]."""


class NoiseBursts:
    """Adds bursts to actions; all draws come from ``rng``. ``scale`` is that of the robot's table."""

    def __init__(self, config: NoiseConfig, rng: np.random.Generator, scale: float = 1.0) -> None:
        self.config = config
        self.rng = rng
        self.control = ControlConfig()
        self.scale = scale
        self._left = 0
        self._push: np.ndarray = np.zeros(EE_ACTION_DIM)

    def disturb(self, action: np.ndarray) -> np.ndarray:
        """Return the action (7,) to execute instead of ``action``; the gripper is left alone."""
        if self._left == 0 and self.rng.random() < self.config.burst_probability:
            self._begin()
        if self._left == 0:
            return action
        self._left -= 1
        return np.clip(action + self._push, -1.0, 1.0)

    def _begin(self) -> None:
        config = self.config
        self._left = int(self.rng.integers(config.burst_steps[0], config.burst_steps[1] + 1))
        offset = self._direction() * self.rng.uniform(*config.offset_m) * self.scale / self.control.position_scale_m
        turn = self._direction() * self.rng.uniform(*config.turn_rad) / self.control.rotation_scale_rad
        self._push = np.concatenate((offset / self._left, turn / self._left, [0.0]))

    def _direction(self) -> np.ndarray:
        vector = self.rng.normal(size=3)
        return vector / np.linalg.norm(vector)
