"""Scripted experts: compute the next relative tool action from the simulator's state.

An expert has no clock and no memory. Each action is a function of the present tool pose, gripper and object poses. Its
demonstrations are therefore Markovian, and it recovers from disturbances.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial.transform import Rotation

from engram.core.control import ControlConfig
from engram.core.errors import EngramError
from engram.core.geometry import rotation
from engram.core.types import Pose
from engram.sim.tasks.placement import above

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld


@dataclass(frozen=True)
class ExpertConfig:
    """How fast an expert moves."""

    gain: float = 0.6
    """Share of the remaining way per step; 1 overshoots, because the arm lags by about a step."""
    speed: float = 0.8
    """Longest translation of one action on a table of full size, in action units (1 = 5 cm per step)."""
    turn_speed: float = 0.5
    """Longest rotation of one action, in action units (1 = 0.25 rad per step)."""


@dataclass(frozen=True)
class Waypoint:
    """Where the tool shall go next."""

    position: np.ndarray  # (3,) m, base_link
    grip: float  # 0 open .. 1 closed
    yaw: float = 0.0  # rad about the vertical, 0 = as in the home pose


class Expert(ABC):
    """Moves towards a waypoint that depends on the present state alone."""

    def __init__(self, world: MujocoWorld, config: ExpertConfig | None = None) -> None:
        self.world = world
        self.config = config or ExpertConfig()
        self.control = ControlConfig()
        self.scale = world.scale
        self._down = rotation(world.kinematics.forward(np.array(world.robot.home)))

    def reset(self) -> None:  # noqa: B027 (an expert with memory overrides it)
        """Begin an episode; these experts have no state to reset."""

    def act(self) -> np.ndarray:
        """Return the action (7,) in [-1, 1] for the present state."""
        goal, tool = self.waypoint(), self.world.tool_pose()
        move = self.config.gain * (goal.position - tool.position) / self.control.position_scale_m
        turned = Rotation.from_euler("z", goal.yaw) * self._down
        turn = (turned * rotation(tool).inv()).as_rotvec() * self.config.gain / self.control.rotation_scale_rad
        return np.concatenate(
            (
                _at_most(move, self.config.speed * self.scale),
                _at_most(turn, self.config.turn_speed),
                [2 * goal.grip - 1],
            )
        )

    def target(self, slot: str = "color") -> str:
        """Return the body that the words mean by ``slot``; raises EngramError before the world's first reset."""
        if self.world.task is None:
            raise EngramError("no task is running: reset the world first")
        return self.world.task.targets[slot]

    @abstractmethod
    def waypoint(self) -> Waypoint:
        """Return where the tool shall go next, from the present state alone."""


def _at_most(vector: np.ndarray, length: float) -> np.ndarray:
    return vector * min(1.0, length / max(float(np.linalg.norm(vector)), 1e-9))


def funnel(distance: float, near: float, far: float) -> float:
    """Return 0 up to distance ``near``, 1 from ``far`` on, a straight line between: how high to stay above a goal."""
    return float(np.clip((distance - near) / (far - near), 0.0, 1.0))


CLEARANCE_M = 0.06
"""How high closed fingers stay above things on their way to one."""


def down_on(tool: np.ndarray, top: np.ndarray, height_m: float, clearance_m: float = CLEARANCE_M) -> Waypoint:
    """Return the way of closed fingers at ``tool`` (3,) m over ``top`` (3,) m, then to ``height_m`` above it.

    On the way they stay ``clearance_m`` above it.
    """
    clear = clearance_m * funnel(float(np.hypot(*(tool - top)[:2])), 0.012, 0.04)
    return Waypoint(above(top, max(clear, height_m) if clear else height_m), grip=1.0)


def square_yaw(pose: Pose) -> float:
    """Return the turn about the vertical of a square body, in [-pi/4, pi/4): quarter turns look the same."""
    x_axis = rotation(pose).apply((1.0, 0.0, 0.0))
    quarter = np.pi / 2
    return float((np.arctan2(x_axis[1], x_axis[0]) + quarter / 2) % quarter - quarter / 2)
