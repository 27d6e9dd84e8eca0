"""The expert that touches the remembered thing."""

from __future__ import annotations

import numpy as np

from engram.sim.experts.base import Waypoint, funnel
from engram.sim.experts.memory.base import MemoryExpert
from engram.sim.tasks.memory.touch import RememberColor, ShellTouch
from engram.sim.tasks.memory.unseen import TouchUnseen
from engram.sim.tasks.placement import above

CLEARANCE_M = 0.06
DEPTH_M = 0.015
"""How far below its top the closed fingers aim: who comes a few millimetres short of that, as a policy does, touches
it."""


class TouchExpert(MemoryExpert):
    """Over the option with closed fingers, then down on it."""

    def waypoint(self) -> Waypoint:
        task = self.task
        assert isinstance(task, ShellTouch | RememberColor | TouchUnseen)
        top = above(np.append(task.places[self.cue], 0.0), task.option_height_m)
        distance = float(np.hypot(*(self.world.tool_pose().position - top)[:2]))
        height = CLEARANCE_M * funnel(distance, 0.012, 0.04) or -DEPTH_M
        return Waypoint(above(top, height), grip=1.0)
