"""Simulation: worlds, robot, tasks, experts, environments. Importing it registers the Gymnasium environments."""

from gymnasium.envs.registration import register

ENVIRONMENTS = {
    "engram/Reach-v0": "reach",
    "engram/PushToMark-v0": "push_to_mark",
    "engram/PickPlace-v0": "pick_place",
    "engram/Stack-v0": "stack",
    "engram/OpenDrawer-v0": "open_drawer",
    "engram/PressButton-v0": "press_button",
}
"""Gymnasium id -> task name."""

for _id, _task in ENVIRONMENTS.items():
    register(id=_id, entry_point="engram.sim.env:TabletopEnv", kwargs={"task": _task})
