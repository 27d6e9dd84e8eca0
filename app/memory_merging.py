"""``engram memory merge|unmerge|conflicts|join|keep-apart``: several robots' memories in one, without ROS.

All but ``conflicts`` write and are refused while a node holds the store; its services do the same.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from engram.app.memory_opening import StoreArgument, open_to_read, open_to_write
from engram.core.errors import InvalidInputError, StoreError
from engram.core.paths import at_home


@dataclass(frozen=True)
class Merge(StoreArgument):
    """Merge another robot's store into this one. It can be taken out again with ``unmerge``."""

    other: tyro.conf.Positional[Path] = Path()
    """Folder of the other store."""
    robot: str = "robot1"
    """Name of the other robot: the prefix of what only it knew."""
    transform: tuple[float, float, float, float] | None = None
    """First guess (x, y, z [m], yaw [rad]) of the other robot's frame in ours. Without it, the transform is found
    from objects that both know."""


@dataclass(frozen=True)
class Unmerge(StoreArgument):
    """Remove another robot's memory again; or, given a number, undo one merge of two objects."""

    what: tyro.conf.Positional[str] = "robot1"
    """Name of the robot, or the number of a merge. A name takes precedence."""


@dataclass(frozen=True)
class Conflicts(StoreArgument):
    """List pairs that may be one object or two, and the commands that decide."""


@dataclass(frozen=True)
class Join(StoreArgument):
    """Decide that two objects are one; `unmerge` undoes it."""

    kept: tyro.conf.Positional[str] = ""
    """Node id that stays."""
    gone: tyro.conf.Positional[str] = ""
    """Node id of the object that is merged into it."""


@dataclass(frozen=True)
class KeepApart(StoreArgument):
    """Decide that two objects in conflict are two."""

    a: tyro.conf.Positional[str] = ""
    """Node id of the one."""
    b: tyro.conf.Positional[str] = ""
    """Node id of the other."""


def merge(config: Merge, path: Path) -> None:
    """Merge two stores."""
    from engram.memory.merging.memories import merge_from
    from engram.memory.storage.se2 import PlaneTransform
    from engram.memory.storage.snapshots import read_snapshot

    if at_home(config.other).resolve() == path.resolve():
        raise InvalidInputError(f"{config.other}: a store cannot be merged into itself; name that of another robot")
    other = read_snapshot(at_home(config.other))
    if other is None:
        raise StoreError(f"{config.other}: the store is empty")
    guess = None
    if config.transform is not None:
        *shift, yaw = config.transform
        guess = PlaneTransform(yaw, np.array(shift))
    with open_to_write(path, "memory/merge") as memory:
        report = merge_from(memory, other, config.robot, guess)
    x, y, z = report.transform.shift
    print(
        f"merged: {len(report.matched)} objects known to both, {len(report.added)} new; their frame in ours: "
        f"({x:.3f}, {y:.3f}, {z:.3f}) m, {report.transform.yaw:.3f} rad by {report.transform.inliers} landmarks"
    )
    for conflict in report.conflicts:
        print(f"  conflict: {conflict.words}")
    if report.conflicts:
        print("engram memory conflicts says how to decide them")


def unmerge(config: Unmerge, path: Path) -> None:
    """Undo a merge."""
    with open_to_write(path, "memory/merge or memory/resolve, with undo") as memory:
        undone = _undo(memory, config.what)
    print(f"undone: {undone}")


def _undo(memory: Any, what: str) -> str:
    """Take the robot called ``what`` out of a GraphMemory, else the merge of that number back; return what was undone.

    Raises:
        InvalidInputError: there is neither.
    """
    from engram.memory.merging.memories import unmerge as unmerge_robot

    try:
        return f"{unmerge_robot(memory, what)} objects"
    except InvalidInputError as no_robot:
        if not what.isdecimal():
            raise
        try:
            memory.undo_merge(int(what), "engram memory unmerge")
        except InvalidInputError as no_merge:
            raise InvalidInputError(f"{no_robot}; {no_merge}") from no_merge
    return f"merge {what}"


def conflicts(config: Conflicts, path: Path) -> None:
    """Print what is undecided."""
    tracker = open_to_read(path).tracker
    store = f"--store {shlex.quote(str(path))}"
    found = tracker.conflicts.undecided(tracker.columns.row_of)
    if not found:
        print("no conflicts")
    for one in found:
        print(
            f"{one.kind}: {one.words}\n"
            f"  one:  engram memory join {store} {one.ours} {one.theirs}\n"
            f"  two:  engram memory keep-apart {store} {one.ours} {one.theirs}"
        )


def join(config: Join, path: Path) -> None:
    """Make two objects one."""
    from engram.memory.merging.memories import join as join_objects

    with open_to_write(path, "memory/resolve") as memory:
        number, _ = join_objects(memory, config.kept, config.gone, "engram memory join")
    print(f"joined: {config.gone} is part of {config.kept}; engram memory unmerge {number} takes that back")


def keep_apart(config: KeepApart, path: Path) -> None:
    """Decide a conflict."""
    from engram.memory.merging.memories import keep_apart as keep_two_apart

    with open_to_write(path, "memory/resolve") as memory:
        keep_two_apart(memory, config.a, config.b)
    print(f"kept apart: {config.a} and {config.b}")
