"""The memory-demanding tasks."""

from engram.sim.tasks.memory.base import MemoryConfig, MemoryTask
from engram.sim.tasks.memory.blocks import ChangeFood, PutBlockBack, RearrangeBlock, TakeItBack
from engram.sim.tasks.memory.buttons import CountPresses, SeqPushButtons, StopCube
from engram.sim.tasks.memory.drawers import ReopenDrawer
from engram.sim.tasks.memory.intercept import InterceptGrab
from engram.sim.tasks.memory.touch import MatchColor, RememberColor, ShellTouch
from engram.sim.tasks.memory.unseen import PlaceUnseen, TouchUnseen

MEMORY_TASKS: dict[str, type[MemoryTask]] = {
    task.name: task
    for task in (
        ShellTouch,
        RememberColor,
        TakeItBack,
        InterceptGrab,
        PutBlockBack,
        ReopenDrawer,
        RearrangeBlock,
        SeqPushButtons,
        ChangeFood,
        CountPresses,
        StopCube,
        MatchColor,
    )
}
"""Name -> task class."""

UNSEEN_TASKS: dict[str, type[MemoryTask]] = {task.name: task for task in (TouchUnseen, PlaceUnseen)}
"""Tasks whose target leaves the cameras' view: for policies that read where things are in the scene graph."""

__all__ = ["MEMORY_TASKS", "UNSEEN_TASKS", "MemoryConfig", "MemoryTask"]
