"""The tabletop as a robot's surroundings: nothing ends an episode there, and nobody says whether it went well."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from engram.core.errors import InvalidInputError
from engram.core.robot import PANDA_2F85, RobotConfig
from engram.core.types import JointCommand, Observation, OracleOutcome
from engram.sim.gap_world import GapWorld, world_gap
from engram.sim.gaps import Gap
from engram.sim.world import MujocoWorld, WorldConfig

GAP_FILE = "ENGRAM_TWIN_GAP"
"""Environment variable: a file with the name of the gap that the twin has. It is read anew whenever things are
arranged, so that a robot may change while it works."""


class UnjudgedWorkcell(MujocoWorld):
    """A tabletop whose simulator keeps its verdict to itself: time goes on, whatever happens.

    ``sim_node`` plays a robot's hardware with it (launch argument ``driver:=twin``). The reward is left as it is, for
    those who score.
    """

    def advance(self, command: JointCommand) -> None:
        """Move towards ``command`` no faster than motors do: of two that came at once, the arm makes one's way."""
        most = np.append(self.robot.velocity_max, self.robot.gripper_velocity_max) * self.config.control_dt_s
        way = np.clip(command.positions - self._targets, -most, most)
        super().advance(replace(command, positions=self._targets + way))

    def oracle_outcome(self) -> OracleOutcome:
        """Return the outcome of an episode that is never over."""
        return replace(super().oracle_outcome(), success=False, truncated=False, failed=False)


class GapWorkcell(GapWorld, UnjudgedWorkcell):
    """The same, with a gap."""


class ChangingWorkcell(GapWorkcell):
    """The same, with the gap that a file names (``GAP_FILE``); the gap must lie in the world, not in the controller.

    Raises:
        InvalidInputError: no file is named, or its gap turns, scales, swallows or limits motions: nodes send joint
            targets, and their safety node has the limits.
        UnknownNameError: there is no such gap.
    """

    def __init__(self, config: WorldConfig | None = None, robot: RobotConfig = PANDA_2F85) -> None:
        super().__init__(self._gap(), config, robot)

    def reset(self, task: str, seed: int, instruction: str = "") -> Observation:
        """Arrange ``task`` from ``seed`` on the robot as it is by now."""
        self.gap = self._gap()
        return super().reset(task, seed, instruction)

    @staticmethod
    def _gap() -> Gap:
        path = os.environ.get(GAP_FILE, "")
        if not path:
            raise InvalidInputError(f"{GAP_FILE}: not set, expected a file with the name of a gap")
        try:
            return world_gap(Path(path).read_text().strip())
        except InvalidInputError as error:
            raise InvalidInputError(f"{GAP_FILE}: {error}") from None
