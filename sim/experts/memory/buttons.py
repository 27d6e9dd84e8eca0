"""Experts that press buttons."""

from __future__ import annotations

from abc import abstractmethod

from engram.sim.experts.base import CLEARANCE_M, Waypoint, down_on, funnel
from engram.sim.experts.memory.base import DEPTH_M, MemoryExpert
from engram.sim.experts.simple import BUTTON_TOP_M
from engram.sim.tasks.memory.buttons import ON_MARK_M, ButtonTask, CountPresses, SeqPushButtons, StopCube
from engram.sim.tasks.placement import above

LIFT_M = 0.08
"""How high the fingers rise from a button to press it again."""
LEAD_M, PAST_M = 0.14, 0.02
"""The fingers sink while the cube moves from this far before the mark to this far past it. The press then extends
over many steps; of a press in a single step, a policy learns only the waiting."""


class ButtonExpert(MemoryExpert):
    """Over the next button with closed fingers, all the way down for a moment, and well up again.

    A press counts when the button is half-way down. An expert that left at that moment would teach a policy to leave a
    little earlier. Presses without a clear rise in between could not be told apart in the images.
    """

    @abstractmethod
    def next_button(self) -> str:
        """Return the body to press now."""

    def waypoint(self) -> Waypoint:
        task = self.task
        assert isinstance(task, ButtonTask)
        button = task.pressing or self.next_button()
        return press(self, button, LIFT_M if button == task.leaving else -DEPTH_M)


def press(expert: MemoryExpert, button: str, height: float = -DEPTH_M) -> Waypoint:
    """Return the way over ``button`` and down to ``height`` m above its top."""
    top = above(expert.world.oracle_pose(button).position, BUTTON_TOP_M)
    return down_on(expert.world.tool_pose().position, top, height)


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
    """Wait above the button; on the right pass sink as the cube comes to the mark, and press as it gets there."""

    def waypoint(self) -> Waypoint:
        task = self.task
        assert isinstance(task, StopCube)
        number, offset = task.oracle_passing()
        past = offset if number % 2 == 0 else -offset
        if number == self.cue and past < 0.6 * ON_MARK_M:
            waiting = CLEARANCE_M + DEPTH_M
            return press(self, "stop", waiting * funnel(-past, -PAST_M, LEAD_M) - DEPTH_M)
        return press(self, "stop", CLEARANCE_M)
