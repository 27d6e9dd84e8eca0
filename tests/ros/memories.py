"""A small real memory for the processes: it takes as long as the test wants."""

from __future__ import annotations

import os
import time
from pathlib import Path

from engram.core.errors import StoreError
from engram.core.types import GraphUpdate
from engram.memory.graph_memory import GraphMemory

GATE = "ENGRAM_TEST_GATE"


class Gated(GraphMemory):
    """Asked for the graph of the past, it waits until the file that ``ENGRAM_TEST_GATE`` names is there."""

    def graph(self, at_ns: int | None = None) -> GraphUpdate:
        while at_ns is not None and not Path(os.environ[GATE]).exists():
            time.sleep(0.01)
        return super().graph(at_ns)


class FullDisk(GraphMemory):
    """Commits nothing until the file that ``ENGRAM_TEST_GATE`` names is there."""

    def commit(self) -> int:
        if not Path(os.environ[GATE]).exists():
            raise StoreError("no space left on device")
        return self.tracker.sequence
