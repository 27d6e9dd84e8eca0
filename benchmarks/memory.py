"""Speed of the scene memory from 1e3 to 1e6 objects, each operation beside the bare one that it cannot do without.

    python -m engram.benchmarks.memory [--quick]

CPU times are the process's own: they hold on a busy machine, too. Of a place query, two parts are measured apart: which
rows fit and in which order (``rank``, beside the index alone, which neither filters nor orders), and what a reader gets
of them (``answer``: nodes, facts, evidence, a sentence). A text query embeds its words, ours and the bare one alike
(MiniLM), each time other words. Prints one table a size; the last line is JSON, which also goes to
benchmarks/results/memory.json.
"""

from __future__ import annotations

import gc
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import icechunk
import numpy as np
import tyro
import zarr
from rich.console import Console
from rich.table import Table
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree
from usearch.index import Index

from engram.benchmarks.report import figure, save_report
from engram.core.contracts import MemoryStore
from engram.core.provenance import machine
from engram.core.questions import AtTime, FindObject, Relation, Selection
from engram.core.types import EMBEDDING_DIM, DetectedObject, Pose, SceneNode, SceneObservation
from engram.memory.graph.places import known_place, table
from engram.memory.graph.vectors import EXACT_ROWS
from engram.memory.graph_memory import GraphMemory, GraphMemoryConfig
from engram.memory.query.context import QueryContext
from engram.memory.query.current import rank
from engram.memory.query.find_object import answer_from
from engram.memory.robot_memory import RobotMemory
from engram.memory.storage.records import TABLES, strings
from engram.memory.storage.snapshots import Stored, read_snapshot
from engram.memory.storage.store import GraphStore, GraphStoreConfig
from engram.memory.storage.tables import whole
from engram.perception.embedding import default_text_encoder

RESULTS = Path(__file__).resolve().parent / "results" / "memory.json"
UPDATE_TARGET_MS, QUERY_TARGET = 5.0, 1.3
SPACING_M = 0.4
ROOM_M = 4.0
SECOND = 10**9


@dataclass(frozen=True)
class MemoryBenchmark:
    """What is measured."""

    quick: bool = False
    """Up to 1e4 objects, a third of the repetitions."""
    sizes: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    """Objects in the memory, each with two facts."""
    detections: int = 50
    """Objects in a frame."""
    repetitions: int = 90
    """Of each fast operation; commits and loads a tenth."""
    seed: int = 0
    """Of places and looks."""
    words_up_to: int = 100_000
    """Above this size no question is asked in words: building both indexes takes minutes at a million."""
    keep: Path | None = None
    """Folder for the stores; those that are there are measured as they are, so that a run can be cut in two."""
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


def measure(run: Callable[[int], object], repetitions: int, before: Callable[[int], object] | None = None) -> Timing:
    """Time ``run(i)`` for i = 0 .. repetitions - 1, each after ``before(i)``, which is not timed; one goes first."""
    cpu, wall = np.empty(repetitions + 1), np.empty(repetitions + 1)
    for i in range(repetitions + 1):
        if before is not None:
            before(i)
        c, w = time.process_time(), time.perf_counter()
        run(i)
        cpu[i], wall[i] = time.process_time() - c, time.perf_counter() - w
    return Timing(cpu[1:] * 1e3, wall[1:] * 1e3)


@dataclass(frozen=True)
class World:
    """n objects on a square grid, told apart by their vectors."""

    places: np.ndarray  # (n, 3) m
    colors: np.ndarray  # (n, 3)
    vectors: np.ndarray  # (n, 384) float32


def make_world(count: int, seed: int) -> World:
    """Draw ``count`` objects."""
    rng = np.random.default_rng(seed)
    side = int(np.ceil(np.sqrt(count)))
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2)[:count] * SPACING_M
    vectors = rng.normal(size=(count, EMBEDDING_DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return World(np.column_stack((grid, np.full(count, 0.02))), rng.random((count, 3)), vectors)


def stored(world: World) -> Stored:
    """Return the world as a snapshot: every object was moved once, by a metre, at 100 s."""
    n = len(world.places)
    number = np.zeros((n, 23))
    number[:, 0:3], number[:, 3], number[:, 22] = world.places, 1.0, 0.99
    number[:, 7:16], number[:, 16:19], number[:, 19:22] = np.eye(3).ravel() * 4e-6, 0.04, world.colors
    ids = [f"object_{i:07d}" for i in range(n)]
    text = [json.dumps([i, "object", f"thing {k}", "unseen", "base_link", "front@1", "front@1", {}])
            for k, i in enumerate(ids)]  # fmt: skip
    forever = np.iinfo(np.int64).max
    before = [SECOND, 2 * SECOND, 100 * SECOND, SECOND, 100 * SECOND, forever]
    after = [100 * SECOND, 101 * SECOND, forever, 100 * SECOND, forever, forever]
    code = np.zeros((2 * n, 9), np.int32)
    code[:, 0], code[:, 5:9], code[:, 2] = 3, 1, 2
    code[:, 1] = np.tile(np.arange(n) + 3, 2)
    tables: dict[str, dict[str, np.ndarray]] = {
        table: {c: np.empty((0, spec.width), object if spec.dtype == "string" else spec.dtype)
                for c, spec in columns.items()} for table, columns in TABLES.items()
    }  # fmt: skip
    tables["nodes"] = {"number": number, "time": np.tile([SECOND, 101 * SECOND, 6, 1], (n, 1)), "text": strings(text)}
    tables["embeddings"] = {"embedding": world.vectors}
    places = np.vstack((world.places + np.array([1.0, 0, 0]), world.places)).astype(np.float32)
    times = np.vstack((np.tile(before, (n, 1)), np.tile(after, (n, 1))))
    tables["facts"] = {"place": places, "time": times, "code": code, "sure": times[:, [0, 5]]}
    tables["words"] = {"text": strings(["", "front", "thing", *ids])}
    return Stored(tables, 1, 101 * SECOND, {"issued": {"object": n}})


def rooms(world: World) -> list[SceneNode]:
    """Return rooms of 4 x 4 m around the middle of the world, 100 at most."""
    middle = world.places.mean(axis=0)
    side = min(10, max(2, int(2 * middle[0] / ROOM_M)))
    corners = (np.arange(side) - (side - 1) / 2) * ROOM_M
    return [
        known_place("room", f"room {i}", (middle[0] + x, middle[1] + y, 1.2), (ROOM_M, ROOM_M, 2.5))
        for i, (x, y) in enumerate((float(x), float(y)) for x in corners for y in corners)
    ]


def frames(world: World, config: MemoryBenchmark, first_ns: int, count: int) -> list[SceneObservation]:
    """Return looks down at the middle of the world: its nearest objects, 2 mm off, the others hidden."""
    rng = np.random.default_rng(config.seed)
    middle = world.places.mean(axis=0)
    near = np.argsort(np.linalg.norm(world.places - middle, axis=1), kind="stable")[: config.detections]
    upright = np.array([1.0, 0.0, 0.0, 0.0])

    def detected(i: int) -> DetectedObject:
        pose = Pose(world.places[i] + rng.normal(0, 0.002, 3), upright)
        return DetectedObject(
            f"thing {i}", pose, 0.9, np.eye(3) * 4e-6, np.full(3, 0.04), world.colors[i], world.vectors[i]
        )

    camera = Pose(middle + np.array([0, 0, 2.0]), np.array([0.0, 1.0, 0.0, 0.0]))
    intrinsics = np.array([[64.0, 0, 64], [0, 64.0, 64], [0, 0, 1]])
    grid = np.full((32, 32), 1.0, np.float32)
    return [
        SceneObservation(first_ns + k * SECOND // 10, "front", tuple(map(detected, near)), camera, intrinsics,
                         (128, 128), grid)
        for k in range(count)
    ]  # fmt: skip


class Bare:
    """The operations themselves, on arrays of the same size."""

    def __init__(self, world: World, tables: Stored, config: MemoryBenchmark) -> None:
        self.world, self.config = world, config
        self.tree = cKDTree(world.places)
        self.facts = tables.tables["facts"]["time"]
        self.past = cKDTree(tables.tables["facts"]["place"])
        self.graph: Index | None = None
        if EXACT_ROWS < len(world.places) <= config.words_up_to:
            self.graph = Index(ndim=EMBEDDING_DIM, metric="ip", dtype="f16")
            self.graph.add(np.arange(len(world.vectors)), world.vectors)

    def update(self, scene: SceneObservation) -> None:
        """Neighbours of each sight, and one assignment by looks."""
        places = np.array([one.pose.position for one in scene.objects])
        _, near = self.tree.query(places, k=4)
        rows = np.unique(near[near < len(self.world.places)])
        looks = np.array([one.embedding for one in scene.objects])
        linear_sum_assignment(-(self.world.vectors[rows] @ looks.T))

    def nearest(self, vector: np.ndarray, count: int) -> None:
        """The rows nearest in meaning."""
        if self.graph is not None:
            self.graph.search(vector, count)
        else:
            np.argpartition(-(self.world.vectors @ vector), count)[:count]

    def then(self, place: np.ndarray, at_ns: int) -> None:
        """The facts near a place that were true at a time."""
        rows = self.past.query_ball_point(place, 1.0)
        np.flatnonzero((self.facts[rows, 0] <= at_ns) & (at_ns < self.facts[rows, 2]))

    def load(self, folder: Path) -> None:
        """Read the columns of the newest snapshot, nothing more."""
        repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder / "graph")))
        root = zarr.open_group(repository.readonly_session("main").store, mode="r")
        for _, group in root.groups():
            for _, array in group.arrays():
                array[:]

    def commit(self, folder: Path, data: Stored) -> Callable[[int], object]:
        """Return an icechunk commit that rewrites the same rows of the same arrays."""
        repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(folder)))
        session = repository.writable_session("main")
        root = zarr.group(store=session.store)
        number = data.tables["nodes"]["number"]
        array = root.create_array("number", shape=number.shape, chunks=(64, 23), dtype="f8")
        array[:] = number
        session.commit("all")
        rows = np.sort(self.tree.query(self.world.places.mean(axis=0), k=self.config.detections)[1])

        def commit(i: int) -> None:
            session = repository.writable_session("main")
            array = zarr.open_group(session.store, mode="a")["number"]
            assert isinstance(array, zarr.Array)
            array.oindex[rows] = number[rows] + i
            session.commit(str(i))

        return commit


def run(count: int, config: MemoryBenchmark, folder: Path) -> dict[str, dict[str, Timing]]:
    """Measure every operation at one size: ours, and the bare one that it contains."""
    world = make_world(count, config.seed)
    data = stored(world)
    unbounded = GraphStoreConfig(budget_mb=1e6)
    if not (folder / "ours").exists():
        store = GraphStore(folder / "ours", unbounded)
        store.commit(whole(data.tables), data.sequence, data.stamp_ns, data.about)
        store.close()
    store = GraphStore(folder / "ours", unbounded)
    encoder = default_text_encoder()
    settings = GraphMemoryConfig(budget_mb=1e6)
    memory = GraphMemory(store, settings, encoder, (table(),))
    for room in rooms(world):
        memory.tracker.scene.put(replace(room, id=memory.tracker.scene.new_id("room")))
    memory.tracker.relation_updates.relate_all()
    gc.collect()
    gc.freeze()  # as memory_node does
    bare, n, few = Bare(world, data, config), config.repetitions, max(3, config.repetitions // 10)
    looks = frames(world, config, 200 * SECOND, 3 * n + 1)
    results = {"update": {"ours": measure(lambda i: memory.update(looks[i]), 3 * n),
                          "limit": measure(lambda i: bare.update(looks[i]), n)}}  # fmt: skip
    memory.query(AtTime(FindObject(place=world.places[0], radius_m=1.0), (SECOND, SECOND)))  # builds its index
    ours = [f"what is thing number {i} of {count}" for i in range(n + 1)]
    theirs = [f"which thing is number {i} of {count}" for i in range(n + 1)]
    if count <= config.words_up_to:
        results["text_query"] = {
            "ours": measure(lambda i: memory.query(FindObject(ours[i])), n),
            "limit": measure(lambda i: bare.nearest(encoder.encode([theirs[i]])[0], 104), n),
        }
        vector, context = memory.embed(ours[0]), memory.query_context()
        results["search"] = {
            "ours": measure(lambda i: context.search(Selection(ours[0], vector=vector)), n),
            "limit": measure(lambda i: bare.nearest(vector, 104), n),
        }
    spots = world.places[np.random.default_rng(1).integers(0, count, n + 1)]
    results |= place_queries(memory, bare, [FindObject(place=spot, radius_m=1.0) for spot in spots], n)
    rooms_asked = [Relation("in", f"room {i % 4}") for i in range(n + 1)]
    results["room_query"] = {"ours": measure(lambda i: memory.query(rooms_asked[i]), n)}
    rooms_then = [AtTime(one, (50 * SECOND,) * 2) for one in rooms_asked]
    results["room_then_query"] = {"ours": measure(lambda i: memory.query(rooms_then[i]), n)}
    results["time_query"] = {
        "ours": measure(
            lambda i: memory.query(AtTime(FindObject(place=spots[i], radius_m=1.0), (50 * SECOND,) * 2)), n
        ),
        "limit": measure(lambda i: bare.then(spots[i], 50 * SECOND), n),
    }
    memory.commit()  # the rooms, too
    results["commit"] = {
        "ours": measure(lambda _: memory.commit(), few, before=lambda i: memory.update(looks[i])),
        "limit": measure(bare.commit(folder / "bare", data), few),
    }
    store.close()
    loads = 3 if count <= 10_000 else 1
    results["load"] = {
        "ours": measure(lambda _: GraphMemory(stored=read_snapshot(folder / "ours"), config=settings), loads),
        "limit": measure(lambda _: bare.load(folder / "ours"), loads),
    }
    return results


def place_queries(memory: GraphMemory, bare: Bare, queries: list[FindObject], n: int) -> dict[str, dict[str, Timing]]:
    """Measure whole answers about a place, and their parts apart."""
    tracker, settings = memory.tracker, memory.config
    ranked = [rank(tracker, memory.index, query.selection(), settings.retrieval)[0] for query in queries]
    context = memory.query_context()
    hits = [context.search(query.selection()) for query in queries]

    def build(i: int) -> None:
        nodes = tracker.columns.nodes(ranked[i])
        tracker.history.facts([row for node in nodes if (row := tracker.history.current(node.id)) is not None])
        answer_from(queries[i], context, hits[i])

    index_alone = measure(lambda i: bare.tree.query_ball_point(queries[i].place, 1.0), n)
    return {
        "place_query": {"ours": measure(lambda i: memory.query(queries[i]), n), "limit": index_alone},
        "place_rank": {
            "ours": measure(lambda i: rank(tracker, memory.index, queries[i].selection(), settings.retrieval), n),
            "limit": index_alone,
        },
        "place_answer": {"ours": measure(build, n)},
    }


def side_by_side(config: MemoryBenchmark) -> list[dict[str, object]]:
    """Measure the four stores as one memory beside the slowest of them alone, in wall time.

    40 objects of which one moves in each of 400 frames, so that every store has something to tell.
    """
    world = make_world(40, config.seed)
    memory = RobotMemory(encoder=default_text_encoder())
    alone = GraphMemory(encoder=default_text_encoder())
    ours: list[float] = []
    theirs: list[float] = []
    scenes = frames(world, replace(config, detections=40), SECOND, 400)
    for step, scene in enumerate(scenes):
        objects = list(scene.objects)
        one = objects[step % 40]
        away = Pose(one.pose.position + np.array([0.1 * (1 + step // 40 % 2), 0.0, 0.0]), one.pose.quaternion)
        objects[step % 40] = replace(one, pose=away)
        scene = replace(scene, objects=tuple(objects))
        for target, times in ((alone, theirs), (memory, ours)):
            begin = time.perf_counter()
            target.update(scene)
            times.append((time.perf_counter() - begin) * 1e3)
    questions = [FindObject(f"where is thing {i % 40}") for i in range(config.repetitions + 1)]
    for question in questions:  # everybody has taken everything in, and the words' vectors are known to all alike
        memory.query(question)
    context = memory.scene.query_context()
    asked: dict[str, Callable[[FindObject], object]] = {
        "together": memory.query,
        "graph": alone.query,
        **{store.name: recalls(store, context) for store in (memory.short_term, memory.episodic, memory.semantic)},
    }
    took = turns(asked, questions)
    memory.close()
    return [
        beside_slowest("query", took.pop("together"), took),
        beside_slowest("update", np.array(ours), {"graph": np.array(theirs)}),
    ]


def recalls(store: MemoryStore, context: QueryContext) -> Callable[[FindObject], object]:
    """Return what asks one store alone."""
    return lambda question: store.recall(context.embedded(question.selection()))


def turns(asked: dict[str, Callable[[FindObject], object]], questions: list[FindObject]) -> dict[str, np.ndarray]:
    """Return the wall time (n - 1,) ms of each for all ``questions`` but the first, which warms up.

    They take turns, question by question, so that a machine that is slower for a while is so for all of them.
    """
    took = {name: np.empty(len(questions)) for name in asked}
    for i, question in enumerate(questions):
        for name, ask in asked.items():
            begin = time.perf_counter()
            ask(question)
            took[name][i] = (time.perf_counter() - begin) * 1e3
    return {name: times[1:] for name, times in took.items()}


def beside_slowest(name: str, ours: np.ndarray, parts: dict[str, np.ndarray]) -> dict[str, object]:
    """Return the median of ``ours`` (n,) ms over that of the slowest part, the interval from resampling the turns."""
    rows = np.stack([ours, *parts.values()])
    drawn = np.random.default_rng(0).integers(0, rows.shape[1], (1000, rows.shape[1]))
    middle = np.median(rows[:, drawn], axis=2)
    low, high = np.percentile(middle[0] / middle[1:].max(axis=0), (2.5, 97.5))
    each = {part: float(np.median(times)) for part, times in parts.items()}
    value, slowest = float(np.median(ours)), max(each.values())
    told = ", ".join(f"{n} {v:.2f}" for n, v in each.items())
    print(f"four stores, {name}: {value:.2f} ms; alone: {told}; ratio {value / slowest:.2f} [{low:.2f}, {high:.2f}]")
    return figure(
        f"memory_four_stores_{name}_over_slowest", value / slowest, len(ours), (low, high), f"<= {QUERY_TARGET}",
        value / slowest <= QUERY_TARGET, sum=round(sum(each.values()) / slowest, 3),
    )  # fmt: skip


def print_table(count: int, results: dict[str, dict[str, Timing]]) -> None:
    """Print ours, the limit and their ratio."""
    columns = ("operation", "ours CPU p50 / p99 ms", "ours wall p50 / p99 ms", "bare CPU p50 ms", "ratio")
    shown = Table(*columns, title=f"{count:,} objects")
    for name, timing in results.items():
        (cpu50, wall50), (cpu99, wall99) = timing["ours"].p(50), timing["ours"].p(99)
        limit = timing["limit"].p(50)[0] if "limit" in timing else None
        beside = (f"{limit:.3f}", f"{cpu50 / limit:.2f}") if limit else ("", "")
        shown.add_row(name, f"{cpu50:.2f} / {cpu99:.2f}", f"{wall50:.2f} / {wall99:.2f}", *beside)
    Console().print(shown)


def figures(count: int, results: dict[str, dict[str, Timing]]) -> list[dict[str, object]]:
    """Return the figures of one size: CPU time, median and quartiles, and the ratio to the bare operation."""
    found = []
    for name, timing in results.items():
        value = timing["ours"].p(50)[0]
        limit = timing["limit"].p(50)[0] if "limit" in timing else None
        ratio = None if not limit else round(value / limit, 3)
        target, met = None, None
        if name == "update" and count == 10_000:
            target, met = f"<= {UPDATE_TARGET_MS} ms", value <= UPDATE_TARGET_MS
        if name == "text_query" and ratio is not None:
            target, met = f"<= {QUERY_TARGET} x bare", ratio <= QUERY_TARGET
        quartiles = [timing["ours"].p(percent)[0] for percent in (25, 75)]
        found.append(figure(
            f"memory_{name}_cpu_ms_{count}", value, len(timing["ours"].cpu), quartiles, target, met,
            p99=round(timing["ours"].p(99)[0], 3), bare=limit and round(limit, 4), ratio=ratio,
        ))  # fmt: skip
    return found


def growth(measured: dict[int, dict[str, dict[str, Timing]]]) -> list[dict[str, object]]:
    """Return by what each operation grew from the smallest to the largest size, beside the growth of the logarithm."""
    small, large = min(measured), max(measured)
    if small == large:
        return []
    limit, found = float(np.log(large) / np.log(small)), []
    for name in ("update", "place_query", "time_query", "room_query", "room_then_query"):
        before, after = (measured[size][name]["ours"].p(50)[0] for size in (small, large))
        found.append(figure(
            f"memory_{name}_growth_{small}_to_{large}", after / before, len(measured[large][name]["ours"].cpu),
            target=f"<= {limit:.2f} (logarithm)", met=after / before <= limit,
        ))  # fmt: skip
    return found


def main(config: MemoryBenchmark | None = None) -> None:
    """Measure, print, save."""
    config = config or tyro.cli(MemoryBenchmark)
    if config.quick:
        sizes = tuple(size for size in config.sizes if size <= 10_000)
        config = replace(config, sizes=sizes, repetitions=max(20, config.repetitions // 3))
    where = machine()  # with the load before the measurement
    found: list[dict[str, object]] = []
    measured = {}
    for count in config.sizes:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) if config.keep is None else config.keep / str(count)
            shutil.rmtree(folder / "bare", ignore_errors=True)
            measured[count] = results = run(count, config, folder)
        gc.unfreeze()
        print_table(count, results)
        found += figures(count, results)
    found += growth(measured) + side_by_side(config)
    save_report(config.output, "memory", where, config, figures=found)


if __name__ == "__main__":
    main()
