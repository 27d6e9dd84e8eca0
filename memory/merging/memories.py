"""Merging of whole memories: the functions of :mod:`engram.memory.merging.fleet`, with all stores told of the change.

Nothing else in the memory imports this package: a robot that is alone needs none of it.
"""

from __future__ import annotations

from engram.core.types import GraphUpdate
from engram.memory.graph_memory import GraphMemory
from engram.memory.merging import fleet
from engram.memory.merging.alignment import FleetConfig
from engram.memory.merging.fleet import FleetReport
from engram.memory.robot_memory import RobotMemory
from engram.memory.storage.se2 import PlaneTransform
from engram.memory.storage.snapshots import Stored


def merge_from(
    memory: GraphMemory | RobotMemory, stored: Stored, robot: str, guess: PlaneTransform | None = None,
    config: FleetConfig | None = None,
) -> FleetReport:  # fmt: skip
    """Make the memory ``stored`` of ``robot`` a partition of ``memory``; see :func:`fleet.merge_from`."""
    report = fleet.merge_from(memory.tracker, stored, robot, guess, config)
    memory.publish(memory.graph())
    return report


def unmerge(memory: GraphMemory | RobotMemory, robot: str) -> int:
    """Take the partition of ``robot`` out again; return how many objects that touched."""
    count = fleet.unmerge(memory.tracker, robot)
    memory.publish(memory.graph())
    return count


def join(memory: GraphMemory | RobotMemory, kept_id: str, gone_id: str, who: str) -> tuple[int, GraphUpdate]:
    """Make two objects one; return the number of the merge, by which it is undone, and what changed."""
    number, change = fleet.join(memory.tracker, kept_id, gone_id, who)
    return number, memory.publish(change)


def keep_apart(memory: GraphMemory | RobotMemory, a: str, b: str) -> GraphUpdate:
    """Decide a conflict: the objects ``a`` and ``b`` are two."""
    return fleet.keep_apart(memory.tracker, a, b)
