"""Speed of the scene memory beside the bare operations that it cannot do without.

    python -m engram.benchmarks.memory [--quick]

CPU times are the process's own: they hold on a busy machine, too. Prints one table; the last line is JSON, which also
goes to benchmarks/results/memory.json.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import icechunk
import numpy as np
import tyro
import zarr
from rich.console import Console
from rich.table import Table

from engram.core.contracts import MemoryQuery
from engram.core.types import EMBEDDING_DIM, DetectedObject, Pose, SceneObservation
from engram.memory.graph_memory import GraphMemory
from engram.memory.store import GraphStore, read_snapshot

RESULTS = Path(__file__).resolve().parent / "results" / "memory.json"
UPDATE_TARGET_MS = 3.0


@dataclass(frozen=True)
class MemoryBenchmark:
    """What is measured."""

    quick: bool = False
    """A fifth of the repetitions."""
    objects: int = 100
    """Objects in the memory."""
    detections: int = 10
    """Objects in a frame."""
    repetitions: int = 300
    """Of each operation."""
    seed: int = 0
    """Of places and looks."""
    output: Path = RESULTS
    """Where the JSON goes."""


@dataclass(frozen=True)
class Timing:
    """CPU and wall time of one operation [ms]."""

    cpu: np.ndarray  # (n,)
    wall: np.ndarray  # (n,)

    def p(self, percent: float) -> tuple[float, float]:
        """Return the percentile of CPU and of wall time."""
        return float(np.percentile(self.cpu, percent)), float(np.percentile(self.wall, percent))


class HashEncoder:
    """Unit vectors from a text's bytes: the sentence model's own time is not the memory's."""

    def encode(self, texts: list[str]) -> np.ndarray:
        """Return (n, 384) float32."""
        rows = [np.random.default_rng(list(text.encode())).normal(size=EMBEDDING_DIM) for text in texts]
        return np.array([row / np.linalg.norm(row) for row in rows], np.float32)


def measure(run: Callable[[int], object], repetitions: int, before: Callable[[int], object] | None = None) -> Timing:
    """Time ``run(i)`` for i = 0 .. repetitions - 1, each after ``before(i)``, which is not timed."""
    cpu, wall = np.empty(repetitions), np.empty(repetitions)
    for i in range(repetitions):
        if before is not None:
            before(i)
        c, w = time.process_time(), time.perf_counter()
        run(i)
        cpu[i], wall[i] = time.process_time() - c, time.perf_counter() - w
    return Timing(cpu * 1e3, wall * 1e3)


def scenes(config: MemoryBenchmark) -> tuple[SceneObservation, list[SceneObservation]]:
    """Return a frame with all objects on a grid, and frames with the first of them, places noisy by 2 mm."""
    rng = np.random.default_rng(config.seed)
    side = int(np.ceil(np.sqrt(config.objects)))
    grid = [(0.2 + 0.1 * (i % side), -0.5 + 0.1 * (i // side), 0.02) for i in range(config.objects)]
    names = [f"thing {i}" for i in range(config.objects)]
    vectors, colors = HashEncoder().encode(names), rng.random((config.objects, 3))

    def detected(i: int) -> DetectedObject:
        pose = Pose(np.array(grid[i]) + rng.normal(0, 0.002, 3), np.array([1.0, 0.0, 0.0, 0.0]))
        return DetectedObject(names[i], 0.9, pose, np.eye(3) * 4e-6, np.full(3, 0.04), colors[i], vectors[i])

    def frame(count: int, stamp: int, depth: float) -> SceneObservation:
        camera = Pose(np.array([0.2 + 0.05 * side, 0.0, 2.0]), np.array([0.0, 1.0, 0.0, 0.0]))
        intrinsics = np.array([[128.0, 0, 64], [0, 128.0, 64], [0, 0, 1]])
        objects = tuple(detected(i) for i in range(count))
        measured = np.full((32, 32), depth, np.float32)
        return SceneObservation(stamp, "front", objects, camera, intrinsics, (128, 128), measured)

    repeats = [frame(config.detections, 1 + i, 1.5) for i in range(config.repetitions)]  # 1.5 m: the others are hidden
    return frame(config.objects, 0, 2.0), repeats


def raw_commit(folder: Path, rows: int) -> Callable[[int], object]:
    """Return a bare icechunk commit of ``rows`` embeddings: the limit of ours."""
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(folder)))
    session = repository.writable_session("main")
    zarr.group(store=session.store).create_array(
        "e", shape=(rows, EMBEDDING_DIM), chunks=(8, EMBEDDING_DIM), dtype="f4"
    )
    session.commit("empty")
    values = np.random.default_rng(0).random((rows, EMBEDDING_DIM), np.float32)

    def commit(i: int) -> None:
        session = repository.writable_session("main")
        zarr.open_group(session.store, mode="a")["e"][:] = values + i
        session.commit(str(i))

    return commit


def run(config: MemoryBenchmark, folder: Path) -> dict[str, dict[str, Timing]]:
    """Measure every operation: ours, and the bare one that it contains."""
    everything, frames = scenes(config)
    memory = GraphMemory(GraphStore(folder / "ours"), encoder=HashEncoder())
    memory.update(everything)
    n = config.repetitions
    update = measure(lambda i: memory.update(frames[i]), n)
    vectors = np.array([node.embedding for node in memory.graph().nodes])
    query = MemoryQuery(text="thing 7")
    text = HashEncoder().encode(["thing 7"])[0]
    few = max(10, n // 10)  # commits are slow
    memory.commit()
    return {
        "update": {"ours": update},
        "query": {
            "ours": measure(lambda i: memory.query(query), n),
            "limit": measure(lambda i: (HashEncoder().encode(["thing 7"]), np.argsort(-(vectors @ text))), n),
        },
        "context": {"ours": measure(lambda i: memory.context("thing 7", i), n)},
        "commit": {
            "ours": measure(lambda _: memory.commit(), few, before=lambda i: memory.update(frames[i])),
            "limit": measure(raw_commit(folder / "raw", config.detections), few),
        },
        "load": {"ours": measure(lambda _: read_snapshot(folder / "ours"), few)},
    }


def print_table(config: MemoryBenchmark, results: dict[str, dict[str, Timing]]) -> None:
    """Print ours, the limit and their ratio."""
    columns = ("operation", "ours CPU p50 / p99 ms", "ours wall p50 / p99 ms", "limit CPU p50 ms", "ratio")
    table = Table(*columns, title=f"{config.detections} detections, {config.objects} objects")
    for name, timing in results.items():
        (cpu50, wall50), (cpu99, wall99) = timing["ours"].p(50), timing["ours"].p(99)
        limit = timing["limit"].p(50)[0] if "limit" in timing else None
        beside = (f"{limit:.2f}", f"{cpu50 / limit:.2f}") if limit else ("", "")
        table.add_row(name, f"{cpu50:.2f} / {cpu99:.2f}", f"{wall50:.2f} / {wall99:.2f}", *beside)
    Console().print(table)


def figure(name: str, timing: Timing) -> dict[str, object]:
    """Return one figure: CPU time, median and quartiles."""
    target = UPDATE_TARGET_MS if name == "update" else None
    value = timing.p(50)[0]
    return {
        "name": f"memory_{name}_cpu_ms",
        "value": round(value, 3),
        "interval": [round(timing.p(25)[0], 3), round(timing.p(75)[0], 3)],
        "n": len(timing.cpu),
        "target": target,
        "met": None if target is None else value < target,
    }


def main(config: MemoryBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(MemoryBenchmark)
    if config.quick:
        config = replace(config, repetitions=max(20, config.repetitions // 5))
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        results = run(config, Path(folder))
    print_table(config, results)
    result = {
        "benchmark": "memory",
        "figures": [figure(name, timing["ours"]) for name, timing in results.items()],
        "config": {k: str(v) if isinstance(v, Path) else v for k, v in asdict(config).items() if k != "output"},
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, load {load:.1f} at the start",
    }
    config.output.parent.mkdir(parents=True, exist_ok=True)
    config.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
