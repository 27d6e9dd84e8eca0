"""The tasks: one file each, found by name."""

from engram.core.errors import unknown_name
from engram.sim.tasks.base import Task
from engram.sim.tasks.open_drawer import OpenDrawer
from engram.sim.tasks.pick_place import PickPlace
from engram.sim.tasks.press_button import PressButton
from engram.sim.tasks.push_to_mark import PushToMark
from engram.sim.tasks.reach import Reach
from engram.sim.tasks.stack import Stack

TASKS: dict[str, type[Task]] = {
    task.name: task for task in (Reach, PushToMark, PickPlace, Stack, OpenDrawer, PressButton)
}
"""Name -> task class; :func:`get_task` makes one for a world."""


def get_task(name: str) -> Task:
    """Return a fresh task; raises UnknownNameError with the valid names."""
    if name not in TASKS:
        raise unknown_name("task", name, TASKS)
    return TASKS[name]()


__all__ = ["TASKS", "Task", "get_task"]
