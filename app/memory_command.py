"""``engram memory query|history|snapshots|export|import|merge|unmerge|conflicts|join|keep-apart|reanchor|repair``: a
store on disk, without ROS.

Reading takes no lock: it works while a memory node writes. ``merge``, ``unmerge``, ``join``, ``keep-apart``,
``reanchor`` and ``repair`` are writers and refused while another one runs; a running node merges by its service
``memory/merge``, lists conflicts by ``memory/conflicts`` and decides them by ``memory/resolve``.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from engram.app import memory_merging as merging
from engram.app.memory_opening import StoreArgument, check_store, open_to_read
from engram.core.errors import InvalidInputError, StoreError
from engram.core.paths import at_home, check_apart

if TYPE_CHECKING:
    from engram.core.types import GraphUpdate

STORES = Path("~/.local/share/engram")
"""Where the nodes keep each robot's memory: ``<robot_id>/memory``."""
SPARK_DSG = (".sparkdsg", ".json")
"""Suffixes of spark_dsg's files: binary, text."""


@dataclass(frozen=True)
class Query(StoreArgument):
    """Ask in words: "where was the red cup before lunch", "what did you do yesterday", "what changed since 10:00"."""

    question: tyro.conf.Positional[tuple[str, ...]] = ()
    """The question."""
    limit: int = 5
    """Most objects in the answer."""
    utc_offset_h: float | None = None
    """Local time less UTC [h], for times of day in the question. Default: the time zone of this machine."""
    near: tuple[float, float, float] | None = None
    """Only within ``radius`` of this place [m]."""
    radius: float = 1.0
    """See ``near`` [m]."""
    robot_at: tuple[float, float, float] | None = None
    """Where a search begins [m]: the advice on where to look takes the way into account. Default: where the memory's
    own robot was seen to stand, if its base can move."""
    snapshot: str = ""
    """Ask a past snapshot instead of the newest."""
    json: bool = False
    """Print one JSON object, with every place of the advised search."""


@dataclass(frozen=True)
class History(StoreArgument):
    """Every fact about one object: when it was true, and when it was believed."""

    object: tyro.conf.Positional[str] = ""
    """Node id or label."""


@dataclass(frozen=True)
class Snapshots(StoreArgument):
    """List the committed states, newest first."""

    limit: int = 20
    """How many."""


@dataclass(frozen=True)
class Export(StoreArgument):
    """Write the memory to a file: .jsonl (everything), .graphml or, for Hydra, .sparkdsg (nodes and relations)."""

    file: tyro.conf.Positional[Path] = Path("memory.jsonl")
    """Where to."""
    snapshot: str = ""
    """A past snapshot instead of the newest."""
    at: float | None = None
    """GraphML and spark_dsg: as it was at this time [s since the epoch, or of the simulation's clock]."""


@dataclass(frozen=True)
class Import(StoreArgument):
    """Make a new store of a .jsonl file, or of a graph of spark_dsg (.sparkdsg, .json) or networkx (.graphml)."""

    file: tyro.conf.Positional[Path] = Path("memory.jsonl")
    """What ``engram memory export`` wrote."""


@dataclass(frozen=True)
class Reanchor(StoreArgument):
    """Transform every place into another map: after a new survey, or when the map's origin was moved."""

    map: str = ""
    """Name and version of the new map, as the parameter `map` of memory_node. Required; a store that is in it already
    is refused."""
    transform: tuple[float, float, float, float] | None = None
    """x, y, z [m] and yaw [rad] of the old map's origin in the new map. Required without ``identity``."""
    identity: bool = False
    """The places stay as they are: only the map has another name."""


@dataclass(frozen=True)
class Repair(StoreArgument):
    """Continue from the newest good snapshot of a damaged store; the damaged files are kept beside it."""


def _named(cls: type, name: str) -> Any:
    return Annotated[cls, tyro.conf.subcommand(name)]


MemoryConfig = (
    _named(Query, "query")
    | _named(History, "history")
    | _named(Snapshots, "snapshots")
    | _named(Export, "export")
    | _named(Import, "import")
    | _named(merging.Merge, "merge")
    | _named(merging.Unmerge, "unmerge")
    | _named(merging.Conflicts, "conflicts")
    | _named(merging.Join, "join")
    | _named(merging.KeepApart, "keep-apart")
    | _named(Reanchor, "reanchor")
    | _named(Repair, "repair")
)
WRITERS = (merging.Merge, merging.Unmerge, merging.Join, merging.KeepApart, Reanchor, Repair)
"""What changes a memory: where several robots have one, it must be named."""


def memory(config: Any) -> int:
    """Run one subcommand."""
    if config.store is None and isinstance(config, Import):
        raise InvalidInputError("import makes a new store: name its folder with --store")
    find = only_one if isinstance(config, WRITERS) else last_written
    path = at_home(config.store) if config.store else find(at_home(STORES))
    if isinstance(config, WRITERS):
        check_store(path)
    actions: dict[type, Callable[[Any, Path], None]] = {
        Query: query, History: history, Snapshots: snapshots, Export: export, Import: import_,
        merging.Merge: merging.merge, merging.Unmerge: merging.unmerge, merging.Conflicts: merging.conflicts,
        merging.Join: merging.join, merging.KeepApart: merging.keep_apart, Reanchor: reanchor, Repair: repair,
    }  # fmt: skip
    actions[type(config)](config, path)
    return 0


def last_written(folder: Path) -> Path:
    """Return the memory ``<robot>/memory`` in ``folder`` that was committed to last; raises StoreError without one."""
    commits = sorted(folder.glob("*/memory/graph/repo"), key=lambda file: file.stat().st_mtime)
    if not commits:
        raise _no_memory(folder)
    return commits[-1].parents[1]


def only_one(folder: Path) -> Path:
    """Return the memory ``<robot>/memory`` in ``folder``, damaged or not.

    Raises:
        StoreError: there is none.
        InvalidInputError: there are several, which are listed.
    """
    found = sorted(graph.parent for graph in folder.glob("*/memory/graph"))
    if not found:
        raise _no_memory(folder)
    if len(found) > 1:
        listed = ", ".join(str(one) for one in found)
        raise InvalidInputError(f"several robots have one: name the memory to change with --store; there are {listed}")
    return found[0]


def _no_memory(folder: Path) -> StoreError:
    return StoreError(f"{folder}: no robot has a memory there; run engram demo, or name a folder with --store")


def query(config: Query, path: Path) -> None:
    """Answer a question."""
    from engram.memory.query.advice import itinerary
    from engram.memory.query.language import parse
    from engram.memory.query.phrases import age
    from engram.memory.query.times import QuestionConfig

    if not config.question:
        raise InvalidInputError('no question; for example: engram memory query "where is the red cup"')
    memory = open_to_read(path, config.snapshot)
    wanted = parse(" ".join(config.question), memory.now_ns, config.limit, QuestionConfig(config.utc_offset_h))
    wanted = wanted.refined(
        place=np.array(config.near) if config.near else None,
        radius_m=config.radius if config.near else float("inf"),
        robot_place=np.array(config.robot_at) if config.robot_at else None,
    )
    answer = memory.query(wanted)
    if config.json:
        print(json.dumps(_as_json(answer), indent=2))
        return
    print(answer.text)
    seen = f"; last seen {age(round(answer.age_s * 1e9))} earlier" if answer.nodes else ""
    print(f"confidence {answer.confidence:.2f}{seen}")
    for one in answer.evidence[: config.limit]:
        print(f"  {one.source}: {one.text}" + (f"  [{', '.join(one.ids)}]" if one.ids else ""))
    if answer.advice is not None:
        advice = answer.advice
        print(advice.text)
        if advice.look and (route := itinerary(advice.labels, advice.route, advice.chances, config.limit)):
            print(route)


def _as_json(answer: Any) -> dict[str, Any]:
    """Return a MemoryAnswer as JSON values; places are in the memory's frame [m]."""
    advice = answer.advice
    nodes = [
        {
            "id": node.id, "layer": node.layer, "label": node.label, "place": node.pose.position.tolist(),
            "frame": node.pose.frame, "state": node.state, "belief": float(node.belief), "score": float(score),
        }
        for node, score in zip(answer.nodes, answer.scores, strict=True)
    ]  # fmt: skip
    found = {
        "answer": answer.text,
        "confidence": float(answer.confidence),
        "age_s": float(answer.age_s) if answer.nodes else None,
        "nodes": nodes,
        "evidence": [{"source": one.source, "text": one.text, "ids": list(one.ids)} for one in answer.evidence],
        "advice": None,
    }
    if advice is not None:
        route = zip(advice.labels, advice.route, advice.chances, strict=True)
        found["advice"] = {
            "look": bool(advice.look),
            "text": advice.text,
            "route": [{"label": label, "place": place.tolist(), "chance": chance} for label, place, chance in route],
        }
    return found


def history(config: History, path: Path) -> None:
    """Print the facts of one object."""
    from engram.core.questions import Selection
    from engram.memory.query.names import anchors
    from engram.memory.storage.fact_columns import FOREVER

    tracker = open_to_read(path).tracker
    ids = anchors(tracker, config.object, Selection(valid_ns=(-FOREVER, FOREVER - 1)))
    for node_id in ids:
        for fact in tracker.history.of(node_id):
            x, y, z = fact.place
            where = f"{fact.relation} {fact.target}" if fact.target else ""
            print(
                f"{node_id} {fact.label}: {'at' if fact.present else 'gone from'} ({x:.2f}, {y:.2f}, {z:.2f}) {where}\n"
                f"  true      {_time(fact.valid_from)} .. {_time(fact.valid_to)}, last seen {_time(fact.last_sight)}\n"
                f"  believed  {_time(fact.believed_from)} .. {_time(fact.believed_to)}; {fact.sights} sights"
                f" [{', '.join(fact.evidence)}]"
            )
    for merge in tracker.merges:
        if merge.kept.id in ids or merge.gone.id in ids:
            state = f"undone: {merge.undone}" if merge.undone else "stands"
            print(f"merge {merge.number}: {merge.gone.id} into {merge.kept.id} by {merge.evidence}; {state}")


def snapshots(config: Snapshots, path: Path) -> None:
    """List snapshots."""
    from engram.memory.storage.snapshots import list_snapshots

    for one in list_snapshots(path)[: config.limit]:
        print(f"{one.id}  sequence {one.sequence}  {one.written_at:%Y-%m-%d %H:%M:%S} UTC")


def export(config: Export, path: Path) -> None:
    """Write a file; one of that name is replaced only once the new one is complete."""
    from engram.memory.storage.durable import replacing
    from engram.memory.storage.exchange import write_jsonl
    from engram.memory.storage.snapshots import read_snapshot

    suffix, at_ns = config.file.suffix, None if config.at is None else round(config.at * 1e9)
    valid = (".jsonl", ".graphml", *SPARK_DSG)
    if suffix not in valid:
        raise InvalidInputError(f"{config.file}: suffix {suffix!r}, valid: {', '.join(valid)}")
    check_apart("file", str(config.file), {"the store": path})
    if suffix == ".jsonl":
        if at_ns is not None:
            raise InvalidInputError(f"--at: {config.at}: would change nothing: a .jsonl file has every time in it")
        stored = read_snapshot(path, config.snapshot or None)
        if stored is None:
            raise StoreError(f"{path}: the store is empty")
        with replacing(config.file) as file, file.open("w", encoding="utf-8") as out:
            said = f"{write_jsonl(stored, out)} rows"
    else:
        found = open_to_read(path, config.snapshot).graph(at_ns)
        with replacing(config.file) as file:
            said = _write_graph(found, file)
    print(f"{config.file}: {said}")


def _write_graph(found: GraphUpdate, file: Path) -> str:
    """Write a graph in the format of the file's suffix; return how much it is, in words."""
    if file.suffix == ".graphml":
        import networkx as nx

        from engram.memory.storage.exchange import to_networkx

        graph = to_networkx(found)
        nx.write_graphml(graph, file)
        return f"{len(graph)} nodes, {graph.number_of_edges()} relations"
    from engram.memory.storage.spark_dsg_file import save

    save(found, file)
    return f"{len(found.nodes)} nodes, {len(found.edges)} relations"


def import_(config: Import, path: Path) -> None:
    """Read a file."""
    from engram.memory.storage.exchange import read_jsonl, store_all

    if config.file.suffix == ".graphml" or config.file.suffix in SPARK_DSG:
        print(f"{path}: sequence {_adopt(path, config.file)}")
        return
    try:
        with config.file.open(encoding="utf-8") as source:
            stored = read_jsonl(source, str(config.file))
    except OSError as error:
        raise StoreError(f"{config.file}: {error.strerror}") from error
    print(f"{path}: sequence {store_all(path, stored)}")


def reanchor(config: Reanchor, path: Path) -> None:
    """Carry a store over."""
    from engram.memory.storage.map_frames import reanchored
    from engram.memory.storage.se2 import PlaneTransform
    from engram.memory.storage.store import GraphStore
    from engram.memory.storage.tables import whole

    if not config.map:
        raise InvalidInputError("reanchor: name the new map with --map, as the parameter map of memory_node")
    if (config.transform is None) is not config.identity:
        raise InvalidInputError("reanchor: expected --transform X Y Z YAW or, to rename the map alone, --identity")
    *shift, yaw = config.transform or (0.0, 0.0, 0.0, 0.0)
    transform = PlaneTransform(yaw, np.array(shift))
    with closing(GraphStore(path)) as store:
        stored = store.load()
        if stored is None:
            raise StoreError(f"{path}: the store is empty")
        carried = reanchored(stored, transform, config.map)
        sequence = store.commit(whole(carried.tables), carried.sequence, carried.stamp_ns, carried.about)
    print(f"{path}: in map {config.map!r} from sequence {sequence} on; earlier snapshots are in the old one")


def repair(config: Repair, path: Path) -> None:
    """Repair a store."""
    from engram.memory.storage.store import repair as repair_store

    print(f"{path}: goes on from sequence {repair_store(path)}")


def _adopt(path: Path, file: Path) -> int:
    """Make a new store of a graph of spark_dsg or networkx; return its sequence."""
    from engram.memory.graph.tracker_config import TrackerConfig
    from engram.memory.graph_memory import GraphMemory, GraphMemoryConfig
    from engram.memory.storage.exchange import read_graphml
    from engram.memory.storage.spark_dsg_file import load
    from engram.memory.storage.store import GraphStore

    graph = load(file) if file.suffix in SPARK_DSG else read_graphml(file)
    frame = next((node.pose.frame for node in graph.nodes), "map")
    with closing(GraphStore(path)) as store:
        if store.load() is not None:
            raise StoreError(f"{path}: holds a memory already; import into a new folder and merge that")
        memory = GraphMemory(store, GraphMemoryConfig(tracker=TrackerConfig(frame=frame)), places=())
        memory.adopt(graph)
        return memory.commit()


def _time(stamp_ns: int) -> str:
    if stamp_ns == np.iinfo(np.int64).max:
        return "now"
    if stamp_ns < 10**17:
        return f"{stamp_ns / 1e9:.1f} s"
    return dt.datetime.fromtimestamp(stamp_ns / 1e9).astimezone().strftime("%Y-%m-%d %H:%M:%S")


if __name__ == "__main__":
    sys.exit(memory(tyro.cli(MemoryConfig)))
