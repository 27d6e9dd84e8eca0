"""The robot's memory: what it saw, where things were and are, and what came of its tasks.

>>> from engram.memory import RobotMemory
>>> with RobotMemory.open("~/robot1/memory", read_only=True) as memory:  # doctest: +SKIP
...     print(memory.ask("where was the red cup before lunch").text)

Names are imported when they are first used, so that ``import engram.memory`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engram.core.contracts import MemoryAnswer
    from engram.core.types import DetectedObject, Pose, SceneObservation
    from engram.memory.graph.places import known_place
    from engram.memory.graph_memory import GraphMemory
    from engram.memory.robot_memory import RobotMemory, RobotMemoryConfig

_MODULES = {
    "DetectedObject": "engram.core.types",
    "GraphMemory": "engram.memory.graph_memory",
    "MemoryAnswer": "engram.core.contracts",
    "Pose": "engram.core.types",
    "RobotMemory": "engram.memory.robot_memory",
    "RobotMemoryConfig": "engram.memory.robot_memory",
    "SceneObservation": "engram.core.types",
    "known_place": "engram.memory.graph.places",
}

__all__ = [
    "DetectedObject",
    "GraphMemory",
    "MemoryAnswer",
    "Pose",
    "RobotMemory",
    "RobotMemoryConfig",
    "SceneObservation",
    "known_place",
]


def __getattr__(name: str) -> Any:
    """Import ``name`` from its module (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
