"""Opening the store of a memory from the command line: to read it beside a node, or to write instead of one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engram.core.errors import StoreError, StoreLockedError

CONSOLIDATION_S = 2.0
"""CPU time that a question from the command line may spend on habits, which the store keeps as counts [s]."""


@dataclass(frozen=True)
class StoreArgument:
    """What every subcommand has."""

    store: Path | None = None
    """Folder of the store; default: of the robots' memories in ~/.local/share/engram the one last written."""


@dataclass(frozen=True)
class Known:
    """A memory as a snapshot holds it, and when that was."""

    memory: Any  # RobotMemory, or GraphMemory where the other stores are not needed
    stamp_ns: int


class Writer:
    """The scene graph of a store, to be changed; ``service`` does the same in a memory node that holds it."""

    def __init__(self, path: Path, service: str) -> None:
        from engram.memory.graph_memory import GraphMemory
        from engram.memory.storage.store import GraphStore

        try:
            self._store = GraphStore(path)
        except StoreLockedError as error:
            raise StoreLockedError(f"{error}; if that is a memory node, call its service {service}") from error
        self.memory = GraphMemory(self._store, graph_config(self._store.load()))

    def close(self) -> None:
        """Let the next writer in."""
        self._store.close()


def read_store(path: Path, snapshot: str) -> Known:
    """Open a snapshot as a memory that cannot be committed."""
    from engram.memory.robot_memory import RobotMemory, RobotMemoryConfig
    from engram.memory.storage.store import read_snapshot

    stored = read_snapshot(path, snapshot or None)
    if stored is None:
        raise StoreError(f"{path}: the store is empty")
    memory = RobotMemory(config=RobotMemoryConfig(graph=graph_config(stored)), stored=stored)
    memory.consolidate(CONSOLIDATION_S)
    return Known(memory, stored.stamp_ns)


def graph_config(stored: Any) -> Any:
    """Return the settings under which ``stored`` (None = nothing) opens: its own frame and map."""
    from engram.memory.graph.tracker_config import TrackerConfig
    from engram.memory.graph_memory import GraphMemoryConfig
    from engram.memory.storage.map_frames import Anchor, anchor_of

    anchor = Anchor() if stored is None else anchor_of(stored)
    return GraphMemoryConfig(map=anchor.map, tracker=TrackerConfig(frame=anchor.frame))
