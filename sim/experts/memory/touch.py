"""The experts that touch the remembered thing."""

from __future__ import annotations

import numpy as np

from engram.sim.experts.base import CLEARANCE_M, Waypoint, down_on
from engram.sim.experts.memory.base import DEPTH_M, MemoryExpert
from engram.sim.tasks.memory.touch import RememberColor, ShellTouch
from engram.sim.tasks.memory.unseen import TouchUnseen
from engram.sim.tasks.placement import above


class TouchExpert(MemoryExpert):
    """Over the option with closed fingers, then down on it."""

    def waypoint(self) -> Waypoint:
        task = self.task
        assert isinstance(task, ShellTouch | RememberColor)
        top = above(np.append(task.places[self.cue], 0.0), task.option_height_m)
        return down_on(self.world.tool_pose().position, top, -DEPTH_M)


class TouchUnseenExpert(MemoryExpert):
    """The same among things of different heights: the fingers travel above the highest."""

    def waypoint(self) -> Waypoint:
        task = self.task
        assert isinstance(task, TouchUnseen)
        height = task.tops_m[self.cue]
        clearance = CLEARANCE_M + max(task.tops_m) - height
        top = np.append(task.places[self.cue], height)
        return down_on(self.world.tool_pose().position, top, -DEPTH_M, clearance)
