"""Experts that press buttons."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from engram.sim.experts.base import Waypoint, funnel
from engram.sim.experts.memory.base import MemoryExpert
from engram.sim.experts.simple import BUTTON_TOP_M
from engram.sim.tasks.memory.buttons import ON_MARK_M, ButtonTask, CountPresses, SeqPushButtons, StopCube
from engram.sim.tasks.placement import above

CLEARANCE_M, DEPTH_M = 0.06, 0.002
RELEASE_M = 0.02
"""How high the fingers rise from a button to press it again."""
HOVER_M, STOP_DEPTH_M = 0.02, 0.012
"""Closed fingers end 12 mm below the tool point: from hovering clear of the button, one control step presses it."""


class ButtonExpert(MemoryExpert):
    """Over the next button with closed fingers, down, and up again."""

    @abstractmethod
    def next_button(self) -> str:
        """Return the body to press now."""

    def waypoint(self) -> Waypoint:
        button, task = self.next_button(), self.task
        assert isinstance(task, ButtonTask)
        return press(self, button, RELEASE_M if button in task.down else -DEPTH_M)


def press(expert: MemoryExpert, button: str, height: float = -DEPTH_M) -> Waypoint:
    """Return the way over ``button`` and down to ``height`` m above its top."""
    top = above(expert.world.oracle_pose(button).position, BUTTON_TOP_M)
    aside = float(np.hypot(*(expert.world.tool_pose().position - top)[:2]))
    return Waypoint(above(top, CLEARANCE_M * funnel(aside, 0.012, 0.04) or height), grip=1.0)


class SeqPushExpert(ButtonExpert):
    """Press in the order that the cue means."""

    def next_button(self) -> str:
        task = self.task
        assert isinstance(task, SeqPushButtons)
        return task.order(self.cue)[task.pressed]


class CountExpert(ButtonExpert):
    """Press the counting button until the number is reached, then the other."""

    def next_button(self) -> str:
        task = self.task
        assert isinstance(task, CountPresses)
        return "count" if task.presses <= self.cue else "finish"


class StopCubeExpert(MemoryExpert):
    """Wait just above the button; press when the cube is on the mark on the right pass."""

    def waypoint(self) -> Waypoint:
        task = self.task
        assert isinstance(task, StopCube)
        number, offset = task.oracle_passing()
        now = number == self.cue and abs(offset) < 0.6 * ON_MARK_M
        return press(self, "stop", -STOP_DEPTH_M if now else HOVER_M)
