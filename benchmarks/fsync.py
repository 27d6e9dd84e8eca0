"""Cost of ``fsync``: a commit of the robot's memory that survives a power cut beside one that survives kill -9 alone.

    python -m engram.benchmarks.fsync [--quick]

Two memories of the same objects live in one folder, one of each kind, and take the same frames; their commits take
turns, so that what else the machine does meets both. The commits of one turn give one ratio. Prints one table; the last
line is JSON, which also goes to benchmarks/results/fsync.json. Times are of the disk below ``folder``: a disk that lies
about its cache makes them too good, and no power cut was tried.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from engram.benchmarks.memory import SECOND, MemoryBenchmark, frames, make_world, stored
from engram.benchmarks.memory_ram import AnyWord
from engram.benchmarks.report import figure, save_report
from engram.core.provenance import machine
from engram.memory.robot_memory import RobotMemory
from engram.memory.storage.store import GraphStore, GraphStoreConfig
from engram.memory.storage.tables import whole

RESULTS = Path(__file__).resolve().parent / "results" / "fsync.json"
ARMS = {"without": False, "with": True}


@dataclass(frozen=True)
class FsyncBenchmark:
    """What is measured."""

    quick: bool = False
    """A tenth of the commits."""
    objects: int = 1000
    """Objects in the memory."""
    commits: int = 300
    """Commits of each kind; before each, the memory takes ten frames of ten objects, a second's worth."""
    seed: int = 0
    """Of the places and the looks."""
    folder: Path | None = None
    """Where the stores are; default: a new folder below the working directory. It is on the disk that is measured."""
    output: Path = RESULTS
    """Where the JSON goes."""


def run(config: FsyncBenchmark, folder: Path) -> dict[str, np.ndarray]:
    """Return the times of the commits of each kind [ms]."""
    world = make_world(config.objects, config.seed)
    data = stored(world)
    looks = frames(world, MemoryBenchmark(seed=config.seed), 200 * SECOND, 10 * config.commits)
    times: dict[str, list[float]] = {name: [] for name in ARMS}
    with ExitStack() as stack:
        memories = {}
        for name, fsync in ARMS.items():
            store = GraphStore(folder / name, GraphStoreConfig(fsync=fsync))
            store.commit(whole(data.tables), data.sequence, data.stamp_ns, data.about)
            store.close()
            memories[name] = RobotMemory.open(folder / name, encoder=AnyWord(), fsync=fsync)
            stack.callback(memories[name].close)
            memories[name].commit()
        for turn in range(config.commits):
            for name in sorted(memories, reverse=bool(turn % 2)):
                for look in looks[10 * turn : 10 * turn + 10]:
                    memories[name].update(look)
                while memories[name].busy:  # old snapshots go: no part of a commit
                    time.sleep(0.01)
                start = time.perf_counter()
                memories[name].commit()
                times[name].append(1e3 * (time.perf_counter() - start))
    return {name: np.array(values) for name, values in times.items()}


def ratio(times: dict[str, np.ndarray], seed: int) -> tuple[float, tuple[float, float]]:
    """Return the median ratio of the turns, and its 95 % interval by bootstrap over the turns."""
    ratios = times["with"] / times["without"]
    rng = np.random.default_rng(seed)
    medians = np.median(rng.choice(ratios, (2000, len(ratios))), axis=1)
    low, high = np.percentile(medians, (2.5, 97.5))
    return float(np.median(ratios)), (float(low), float(high))


def main(config: FsyncBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(FsyncBenchmark)
    if config.quick:
        config = FsyncBenchmark(True, config.objects, config.commits // 10, config.seed, config.folder, config.output)
    where = machine()  # with the load before the measurement
    with tempfile.TemporaryDirectory(dir=config.folder or Path.cwd()) as folder:
        times = run(config, Path(folder))
    shown = Table("commit", "p50 ms", "p99 ms", "n", title=f"{config.objects} objects")
    figures = []
    for name, values in times.items():
        p25, p50, p75, p99 = np.percentile(values, (25, 50, 75, 99))
        shown.add_row(f"{name} fsync", f"{p50:.1f}", f"{p99:.1f}", str(len(values)))
        figures.append(figure(f"fsync_commit_{name}_fsync_ms", p50, len(values), (p25, p75), p99_ms=round(p99, 1)))
    value, interval = ratio(times, config.seed)
    figures.append(figure("fsync_commit_ratio_with_over_without", value, config.commits, interval))
    Console(width=100).print(shown)
    save_report(config.output, "fsync", where, config, figures=figures)


if __name__ == "__main__":
    main()
