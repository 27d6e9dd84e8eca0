"""What the memory's own count of its RAM misses: the count beside what the process really grew by, at several sizes.

    python -m engram.benchmarks.memory_ram [--quick]

Each size is measured in a process of its own, beside a small memory that has lived there before. The memory is restored
from tables that are then given back; then it answers one question of each kind, which builds its indexes. The last line
is JSON, which also goes to benchmarks/results/memory_ram.json.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import tyro

from engram.benchmarks.memory import SECOND, MemoryBenchmark, frames, make_world, stored
from engram.benchmarks.report import figure, save_report
from engram.core.child import run_spawned
from engram.core.provenance import machine
from engram.core.questions import AtTime, FindObject
from engram.core.types import EMBEDDING_DIM
from engram.memory.robot_memory import RobotMemory, RobotMemoryConfig
from engram.memory.storage.snapshots import Stored

RESULTS = Path(__file__).resolve().parent / "results" / "memory_ram.json"
TARGET = 1.25
_MB = 1 << 20


@dataclass(frozen=True)
class RamBenchmark:
    """What is measured."""

    quick: bool = False
    """Up to 1e4 objects."""
    sizes: tuple[int, ...] = (1_000, 10_000, 100_000)
    """Objects, each with two facts."""
    updates: int = 50
    """Frames of 50 objects after the restart."""
    seed: int = 0
    """Of places and looks."""
    output: Path = RESULTS
    """Where the JSON goes."""


class AnyWord:
    """Texts -> unit vectors, without a network in the process."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return (n, 384) float32."""
        rows = np.stack([np.random.default_rng(len(text)).normal(size=EMBEDDING_DIM) for text in texts])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def resident_mb() -> float:
    """Return the process's resident memory, after what was freed went back to the system [MB]."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / _MB


def measure(count: int, updates: int, seed: int) -> dict[str, float]:
    """Return MB: counted by the stores, grown with the memory alone, and after questions.

    A small memory lives first and stays, so that what a process takes once (code, arenas of threads) is there before.
    """
    world = make_world(min(count, 500), seed)
    looks = frames(world, MemoryBenchmark(seed=seed), 200 * SECOND, updates)
    questions = (FindObject("thing"), AtTime(FindObject(place=world.places[0], radius_m=1.0), (50 * SECOND,) * 2))

    def lived(data: Stored) -> RobotMemory:
        memory = RobotMemory(config=RobotMemoryConfig().within(1e6), encoder=AnyWord(), stored=data)
        for scene in looks:
            memory.update(scene)
        return memory

    first = lived(stored(world))
    for question in questions:
        first.query(question)
    data = stored(make_world(count, seed))
    before = resident_mb()
    memory = lived(data)
    grown = resident_mb() - before
    for question in questions:
        memory.query(question)
    asked = resident_mb() - before
    counted = sum(memory.bytes_used().values()) / _MB
    for one in (first, memory):
        one.close()
    return {"counted_mb": counted, "grown_mb": grown, "asked_mb": asked}


def main(config: RamBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(RamBenchmark)
    where, found = machine(), []
    for count in [size for size in config.sizes if not config.quick or size <= 10_000]:
        (row,) = run_spawned(partial(measure, updates=config.updates, seed=config.seed), [count], 1)
        ratio = row["asked_mb"] / row["counted_mb"]
        print(f"{count:>9,} objects: counted {row['counted_mb']:.1f} MB, process {row['grown_mb']:.1f} MB, "
              f"with indexes {row['asked_mb']:.1f} MB, ratio {ratio:.2f}")  # fmt: skip
        found.append(figure(
            f"memory_ram_over_count_{count}", ratio, 1, target=f"<= {TARGET}", met=ratio <= TARGET,
            counted_mb=round(row["counted_mb"], 1), process_mb=round(row["grown_mb"], 1),
            with_indexes_mb=round(row["asked_mb"], 1),
        ))  # fmt: skip
    save_report(config.output, "memory_ram", where, config, figures=found)


if __name__ == "__main__":
    main()
