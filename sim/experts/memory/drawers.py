"""The expert that shuts a drawer and opens it again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engram.sim.experts.base import Waypoint
from engram.sim.experts.drawer import APPROACH_M, HELD_FRACTION, DrawerExpert
from engram.sim.experts.memory.base import MemoryExpert
from engram.sim.experts.memory.buttons import press
from engram.sim.tasks.memory.drawers import ReopenDrawer
from engram.sim.tasks.placement import above

FLUSH_M = 0.002
"""The fingers open when the drawer is this far open, well within what counts as shut, so that an imprecise imitation
shuts it, too. They keep pushing while they open, so that opening them too early still shuts it."""


class ReopenExpert(MemoryExpert, DrawerExpert):
    """By the handle: push, let go, press the button, pull."""

    def names(self) -> tuple[str, str]:
        task = self.task
        assert isinstance(task, ReopenDrawer)
        drawer = task.drawers[self.cue]
        return drawer, f"{drawer}_handle"

    def waypoint(self) -> Waypoint:
        task = self.task
        assert isinstance(task, ReopenDrawer)
        if task.stage == "before":
            return self.by_handle(outward=-1.0)
        if task.stage == "press":
            tool, handle = self.world.tool_pose().position, self.world.oracle_pose(self.names()[1]).position
            if np.hypot(*(tool - handle)[:2]) < 0.04 and tool[2] < handle[2] + 0.75 * APPROACH_M:
                if self.world.gripper_fraction() <= HELD_FRACTION:
                    return Waypoint(above(tool, 0.06), grip=0.0)
                flush = self.world.oracle_joint(self.names()[0]) <= FLUSH_M
                return replace(self.by_handle(outward=-1.0), grip=float(not flush))
            return press(self, task.button)
        return self.by_handle()
