"""Experts that carry the remembered block, or carry a block to the remembered place."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from engram.sim.experts.base import ExpertConfig, Waypoint
from engram.sim.experts.carry import CarryExpert
from engram.sim.experts.memory.base import MemoryExpert
from engram.sim.experts.memory.buttons import press
from engram.sim.scene import CUBE_HALF_M
from engram.sim.tasks.memory.blocks import ChangeFood, PutBlockBack, RearrangeBlock, TwoStageTask
from engram.sim.tasks.memory.unseen import PlaceUnseen
from engram.sim.tasks.placement import above
from engram.sim.tasks.stack import RELEASED_FRACTION

if TYPE_CHECKING:
    from engram.sim.world import MujocoWorld


WEDGED_M = 0.014
"""Fingers with a block between them that are lower than this press on the table and cannot open: first lift them."""
STEADY = ExpertConfig(gain=0.5, speed=0.6)
"""Slower than the tabletop's experts: at full speed the arm overshoots when it turns back."""


class BlockExpert(MemoryExpert, CarryExpert):
    """Carries :meth:`block` to :meth:`place`; presses the button in between where the task asks for it."""

    def __init__(self, world: MujocoWorld, config: ExpertConfig | None = None, belief: int | None = None) -> None:
        super().__init__(world, config or STEADY, belief)

    @abstractmethod
    def block(self) -> str:
        """Return the body to carry now."""

    @abstractmethod
    def place(self) -> np.ndarray:
        """Return where it shall lie (2,) m."""

    def target(self, slot: str = "color") -> str:
        return self.block()

    def goal(self) -> np.ndarray:
        return np.append(self.place(), CUBE_HALF_M)

    def placed(self, offset: np.ndarray) -> bool:
        return bool(np.hypot(*offset[:2]) < 0.012 and abs(offset[2]) < 0.005)

    def waypoint(self) -> Waypoint:
        if isinstance(self.task, TwoStageTask) and self.task.stage == "press":
            return self._press(self.task)
        way = super().waypoint()
        tool = self.world.tool_pose().position
        if way.grip == 0.0 and tool[2] < WEDGED_M and self.world.gripper_fraction() > RELEASED_FRACTION:
            return Waypoint(above(tool, 0.02), grip=0.0, yaw=way.yaw)
        return way

    def _press(self, task: TwoStageTask) -> Waypoint:
        """Rise from the block that was put down, then press."""
        tool = self.world.tool_pose().position
        beside = min(float(np.hypot(*(tool - self.world.oracle_pose(b).position)[:2])) for b in task.scene.cubes)
        if beside < 0.05 and tool[2] < 0.09:
            return Waypoint(above(tool, 0.06), grip=0.0)
        return press(self, task.button)


class PutBackExpert(BlockExpert):
    """To the middle, press, back; also for TakeItBack, which has no button."""

    def block(self) -> str:
        return "block"

    def place(self) -> np.ndarray:
        task = self.task
        assert isinstance(task, PutBlockBack)
        return task.places[self.cue] if task.stage == "after" else task.middle


class RearrangeExpert(BlockExpert):
    """The middle block into the gap, press, and back the block on the patch that was the gap."""

    def block(self) -> str:
        task = self.task
        assert isinstance(task, RearrangeBlock)
        return next(block for block, patch in task.homes.items() if patch == self.cue)

    def place(self) -> np.ndarray:
        task = self.task
        assert isinstance(task, RearrangeBlock)
        return task.middle if task.stage == "after" else task.places[task.oracle_cue]


class ChangeFoodExpert(BlockExpert):
    """Carry the food that was not served to the plate."""

    def block(self) -> str:
        task = self.task
        assert isinstance(task, ChangeFood)
        return task.foods[self.cue]

    def place(self) -> np.ndarray:
        task = self.task
        assert isinstance(task, ChangeFood)
        return task.plate


class PlaceUnseenExpert(BlockExpert):
    """Carry the cube to where the named button lies under the cloth."""

    def block(self) -> str:
        return "cube"

    def place(self) -> np.ndarray:
        task = self.task
        assert isinstance(task, PlaceUnseen)
        return task.places[self.cue]
