"""Simulation: worlds, robot, tasks, experts, environments. Importing it registers the Gymnasium environments."""

from typing import TYPE_CHECKING

from gymnasium.envs.registration import register

from engram.core.lazy import lazy

if TYPE_CHECKING:
    from engram.sim.tasks import Task
    from engram.sim.world import MujocoWorld, WorldConfig
    from engram.sim.worlds import make_world

ENVIRONMENTS = {
    "engram/Reach-v0": "reach",
    "engram/PushToMark-v0": "push_to_mark",
    "engram/PickPlace-v0": "pick_place",
    "engram/Stack-v0": "stack",
    "engram/OpenDrawer-v0": "open_drawer",
    "engram/PressButton-v0": "press_button",
    "engram/ShellTouch-v0": "shell_touch",
    "engram/RememberColor-v0": "remember_color",
    "engram/TakeItBack-v0": "take_it_back",
    "engram/InterceptGrab-v0": "intercept_grab",
    "engram/PutBlockBack-v0": "put_block_back",
    "engram/ReopenDrawer-v0": "reopen_drawer",
    "engram/RearrangeBlock-v0": "rearrange_block",
    "engram/SeqPushButtons-v0": "seq_push_buttons",
    "engram/ChangeFood-v0": "change_food",
    "engram/CountPresses-v0": "count_presses",
    "engram/StopCube-v0": "stop_cube",
    "engram/MatchColor-v0": "match_color",
    "engram/TouchUnseen-v0": "touch_unseen",
    "engram/PlaceUnseen-v0": "place_unseen",
}
"""Gymnasium id -> task name."""

TASK_ENVIRONMENT = "engram/Task-v0"
"""Any task: ``gymnasium.make("engram/Task-v0", task="my_package.my_module:MyTask")``."""

register(id=TASK_ENVIRONMENT, entry_point="engram.sim.env:TabletopEnv")
for _id, _task in ENVIRONMENTS.items():
    register(id=_id, entry_point="engram.sim.env:TabletopEnv", kwargs={"task": _task})

_MODULES = {
    "MujocoWorld": "engram.sim.world",
    "Task": "engram.sim.tasks",
    "WorldConfig": "engram.sim.world",
    "make_world": "engram.sim.worlds",
}
__all__ = ["ENVIRONMENTS", "TASK_ENVIRONMENT", "MujocoWorld", "Task", "WorldConfig", "make_world"]
__getattr__, __dir__ = lazy(__name__, _MODULES)
