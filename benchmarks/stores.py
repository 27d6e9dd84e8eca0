"""Speed of short-term, episodic and semantic memory beside the bare vector search in each.

    python -m engram.benchmarks.stores [--quick]

Full stores: 100 recent changes, 4,000 events of 500 tasks, 100 classes. CPU times are the process's own: they hold on
a busy machine, too. ``limit`` is one product of the same vectors with the question and a sort. Prints one table; the
last line is JSON, which also goes to benchmarks/results/stores.json.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from engram.benchmarks.report import figure, save_report
from engram.core.contracts import MemoryStore
from engram.core.provenance import machine
from engram.core.questions import Selection
from engram.core.types import EMBEDDING_DIM, GraphEvent, GraphUpdate, Pose, SceneNode
from engram.memory.stores.episodic.store import EpisodicMemory
from engram.memory.stores.semantic.store import SemanticMemory
from engram.memory.stores.short_term.store import ShortTermMemory

RESULTS = Path(__file__).resolve().parent / "results" / "stores.json"
CLASSES, OBJECTS, SEEN_AT_ONCE = 100, 400, 10
UPDATE_TARGET_MS = 1.0
"""Stores take a change in while the scene graph works on the next frame, which has 5 ms."""


@dataclass(frozen=True)
class StoresBenchmark:
    """What is measured."""

    quick: bool = False
    """A fifth of the repetitions."""
    events: int = 4000
    """Changes that the stores have lived through."""
    tasks: int = 500
    """Episodes among them."""
    repetitions: int = 500
    """Of each operation."""
    seed: int = 0
    """Of places and looks."""
    output: Path = RESULTS
    """Where the JSON goes."""


class Stream:
    """Updates of a scene graph: ten objects are seen, one of them has moved."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        vectors = self._rng.normal(size=(CLASSES, EMBEDDING_DIM))
        self.vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
        self._second = 0

    def step(self) -> GraphUpdate:
        """Return the next update, ten minutes later."""
        self._second += 600
        stamp_ns = self._second * 10**9
        numbers = self._rng.choice(OBJECTS, SEEN_AT_ONCE, replace=False).tolist()
        nodes = tuple(self._node(number, stamp_ns) for number in numbers)
        moved = nodes[0]
        event = GraphEvent("moved", moved.id, moved.label, stamp_ns, moved.pose.position, evidence=f"eye@{stamp_ns}")
        return GraphUpdate(stamp_ns, self._second, False, nodes, events=(event,))

    def _node(self, number: int, stamp_ns: int) -> SceneNode:
        pose = Pose(self._rng.uniform(-5, 5, 3), np.array([1.0, 0.0, 0.0, 0.0]))
        kind = number % CLASSES
        looks = (np.eye(3) * 1e-4, np.full(3, 0.1), np.full(3, 0.5), self.vectors[kind])
        name = f"object_{number:04d}"
        return SceneNode(name, "object", f"kind {kind}", pose, *looks, 0.9, "visible", 0, stamp_ns, 1)


def measure(run: Callable[[int], object], repetitions: int) -> np.ndarray:
    """Return the CPU time (n,) ms of ``run(i)`` for i = 0 .. n - 1."""
    took = np.empty(repetitions)
    for i in range(repetitions):
        began = time.process_time()
        run(i)
        took[i] = time.process_time() - began
    return took * 1e3


def run(config: StoresBenchmark) -> dict[str, dict[str, np.ndarray]]:
    """Fill the stores and time what they do; operation -> ours and, where there is one, the limit."""
    stream = Stream(config.seed)
    episodic = EpisodicMemory(lambda text: stream.vectors[len(text) % CLASSES])
    stores: list[MemoryStore] = [ShortTermMemory(), episodic, SemanticMemory(lambda text: stream.vectors[0])]
    every = max(1, config.events // config.tasks)
    for i in range(config.events):
        if i % every == 0:
            episodic.end("succeeded", 1.0, i)
            episodic.begin("fetch", "x" * (i // every), i)
        change = stream.step()
        for store in stores:
            store.update(change, change.stamp_ns)
    semantic = stores[2]
    assert isinstance(semantic, SemanticMemory)
    semantic.consolidate(60.0)
    queries = [Selection(text="x", vector=stream.vectors[i % CLASSES]) for i in range(config.repetitions)]
    results: dict[str, dict[str, np.ndarray]] = {}
    rows = {"short_term": 100, "episodic": len(episodic.events), "semantic": CLASSES}
    for store in stores:
        vectors = stream.vectors[np.arange(rows[store.name]) % CLASSES]
        results[f"{store.name} recall"] = _recall(store, vectors, queries)
    for store in stores:
        changes = [stream.step() for _ in range(config.repetitions)]
        results[f"{store.name} update"] = {"ours": _update(store, changes)}
    results["semantic consolidation of one class"] = {"ours": measure(lambda _: semantic.consolidate(0.0), 100)}
    return results


def _recall(store: MemoryStore, vectors: np.ndarray, queries: list[Selection]) -> dict[str, np.ndarray]:
    return {
        "ours": measure(lambda i: store.recall(queries[i]), len(queries)),
        "limit": measure(lambda i: np.argsort(-(vectors @ queries[i].vector)), len(queries)),
    }


def _update(store: MemoryStore, changes: list[GraphUpdate]) -> np.ndarray:
    return measure(lambda i: store.update(changes[i], changes[i].stamp_ns), len(changes))


def main(config: StoresBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(StoresBenchmark)
    if config.quick:
        config = StoresBenchmark(True, 1000, 125, config.repetitions // 5, config.seed, config.output)
    where = machine()  # with the load before the measurement
    results = run(config)
    columns = ("operation", "ours p50 / p99 CPU ms", "limit p50 CPU ms", "ratio")
    table = Table(*columns, title="The stores beside the graph")
    figures = []
    for name, times in results.items():
        p25, p50, p75, p99 = np.percentile(times["ours"], (25, 50, 75, 99))
        limit = float(np.median(times["limit"])) if "limit" in times else None
        beside = (f"{limit:.3f}", f"{p50 / limit:.1f}") if limit else ("", "")
        table.add_row(name, f"{p50:.2f} / {p99:.2f}", *beside)
        updates = name.endswith("update")
        target, met = (f"< {UPDATE_TARGET_MS} ms", bool(p50 < UPDATE_TARGET_MS)) if updates else (None, None)
        figures.append(figure(
            f"stores_{name.replace(' ', '_')}_cpu_ms", p50, len(times["ours"]), (p25, p75), target, met,
            limit=None if limit is None else round(limit, 3),
        ))  # fmt: skip
    Console(width=110).print(table)
    save_report(config.output, "stores", where, config, figures=figures)


if __name__ == "__main__":
    main()
