"""Opening a store from the command line: to read it beside a running memory node, or to write instead of one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engram.core.errors import StoreError, StoreLockedError

if TYPE_CHECKING:
    from engram.memory.robot_memory import RobotMemory


@dataclass(frozen=True)
class StoreArgument:
    """What every subcommand has."""

    store: Path | None = None
    """Folder of the store. Default: of the robots' memories in ~/.local/share/engram the one last written; to change
    one, it must be the only one there."""


def check_store(path: Path) -> None:
    """Raise StoreError unless there is a store at ``path``, damaged or not: a mistyped name would begin a new one."""
    if not any(one.name.split(".")[0] == "graph" for one in path.glob("graph*")):
        raise StoreError(f"{path}: no memory store there; engram memory import makes a new one")


def open_to_write(path: Path, service: str) -> RobotMemory:
    """Open the store at ``path`` to change it; ``service`` does the same in a memory node that holds it.

    Raises:
        StoreError: it cannot be opened or written.
    """
    from engram.memory import RobotMemory

    try:
        return RobotMemory.open(path)
    except StoreLockedError as error:
        raise StoreLockedError(f"{error}; if that is a memory node, call its service {service}") from error


def open_to_read(path: Path, snapshot: str = "") -> RobotMemory:
    """Open a snapshot (empty = the newest)."""
    from engram.memory import RobotMemory

    return RobotMemory.open(path, read_only=True, snapshot=snapshot)
