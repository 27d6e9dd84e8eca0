"""The expert that touches the remembered thing."""

from __future__ import annotations

import numpy as np

from engram.sim.experts.base import Waypoint, down_on
from engram.sim.experts.memory.base import DEPTH_M, MemoryExpert
from engram.sim.tasks.memory.touch import RememberColor, ShellTouch
from engram.sim.tasks.memory.unseen import TouchUnseen
from engram.sim.tasks.placement import above


class TouchExpert(MemoryExpert):
    """Over the option with closed fingers, then down on it."""

    def waypoint(self) -> Waypoint:
        task = self.task
        assert isinstance(task, ShellTouch | RememberColor | TouchUnseen)
        top = above(np.append(task.places[self.cue], 0.0), task.option_height_m)
        return down_on(self.world.tool_pose().position, top, -DEPTH_M)
