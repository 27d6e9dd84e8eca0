"""Engram: a robot's memory, a policy that reads it and a learner that keeps going.

>>> import engram
>>> report = engram.evaluate(engram.load_policy("base"), engram.make_world("tabletop"))  # doctest: +SKIP

The names below are what most programs need. Each is imported from its room when it is first used, so ``import engram``
takes a few milliseconds. Every subpackage is a folder at the top of the repository; this folder only gives them their
import name.
"""

import os
from typing import TYPE_CHECKING

from engram.core.lazy import lazy

if TYPE_CHECKING:
    from engram.core.contracts import Detector, Kinematics, Memory, Policy, World
    from engram.core.errors import EngramError
    from engram.core.robot import PANDA_2F85, RobotConfig
    from engram.core.types import (
        ActionChunk,
        CameraFrame,
        DetectedObject,
        JointCommand,
        JointState,
        Observation,
        Pose,
        SceneObservation,
        Transition,
    )
    from engram.core.version import __version__
    from engram.learning.experience.store import ExperienceStore
    from engram.learning.learner import Learner
    from engram.memory.robot_memory import RobotMemory
    from engram.policies.loading import load_policy
    from engram.policies.sequence_memory import SequenceMemory
    from engram.sim.tasks import Task
    from engram.sim.worlds import make_world
    from engram.validation.evaluation import evaluate

_MODULES = {
    # use it
    "RobotMemory": "engram.memory.robot_memory",
    "load_policy": "engram.policies.loading",
    "make_world": "engram.sim.worlds",
    "evaluate": "engram.validation.evaluation",
    "Learner": "engram.learning.learner",
    "ExperienceStore": "engram.learning.experience.store",
    "RobotConfig": "engram.core.robot",
    "PANDA_2F85": "engram.core.robot",
    # extend it: the contracts of the parts that you can plug in
    "Policy": "engram.core.contracts",
    "Detector": "engram.core.contracts",
    "World": "engram.core.contracts",
    "Memory": "engram.core.contracts",
    "Kinematics": "engram.core.contracts",
    "SequenceMemory": "engram.policies.sequence_memory",
    "Task": "engram.sim.tasks",
    # what goes between the parts
    "Observation": "engram.core.types",
    "CameraFrame": "engram.core.types",
    "JointState": "engram.core.types",
    "JointCommand": "engram.core.types",
    "ActionChunk": "engram.core.types",
    "SceneObservation": "engram.core.types",
    "DetectedObject": "engram.core.types",
    "Pose": "engram.core.types",
    "Transition": "engram.core.types",
    "EngramError": "engram.core.errors",
    "__version__": "engram.core.version",
}
"""Name -> module that it is imported from."""

__all__ = [
    "PANDA_2F85",
    "ActionChunk",
    "CameraFrame",
    "DetectedObject",
    "Detector",
    "EngramError",
    "ExperienceStore",
    "JointCommand",
    "JointState",
    "Kinematics",
    "Learner",
    "Memory",
    "Observation",
    "Policy",
    "Pose",
    "RobotConfig",
    "RobotMemory",
    "SceneObservation",
    "SequenceMemory",
    "Task",
    "Transition",
    "World",
    "__version__",
    "evaluate",
    "load_policy",
    "make_world",
]
__getattr__, __dir__ = lazy(__name__, _MODULES)

if not os.environ.get("DISPLAY"):
    os.environ.setdefault("MUJOCO_GL", "egl")  # read once, when mujoco is imported: without a screen, render by EGL
