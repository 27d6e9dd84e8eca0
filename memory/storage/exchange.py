"""Export and import: JSON lines (the whole store) and networkx GraphML (the graph at one time)."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO
from xml.etree import ElementTree

import networkx as nx
import numpy as np

from engram.core.errors import DAMAGED, EngramError, StoreError
from engram.core.types import EMBEDDING_DIM, GraphUpdate, Pose, SceneEdge, SceneNode
from engram.memory.storage.imported import graph_head, imported, imported_embodiment, printable, readable_json
from engram.memory.storage.records import SCHEMA, TABLES, Column, nodes_from
from engram.memory.storage.references import check_references
from engram.memory.storage.snapshots import Stored
from engram.memory.storage.store import GraphStore
from engram.memory.storage.tables import Tables, whole

_END = "end"
"""Field of the last line: how many rows each table has, and the SHA-256 of all lines before it."""


def write_jsonl(stored: Stored, out: TextIO) -> int:
    """Write every row of every table, one a line, between a header line and an end line; return the number of rows.

    The end line tells a whole file from one that was cut off. Arrays are lists of numbers: Python's JSON gives each
    float64 and float32 back bit for bit.
    """
    digest = hashlib.sha256()

    def put(value: Mapping[str, Any]) -> None:
        line = json.dumps(value, ensure_ascii=False) + "\n"
        digest.update(line.encode())
        out.write(line)

    put({"schema": SCHEMA, "sequence": stored.sequence, "stamp_ns": stored.stamp_ns, "about": dict(stored.about)})
    counts = {}
    for table, rows in whole(stored.tables).items():
        for row in rows.index.tolist():
            values = {name: [_plain(v) for v in column[row].tolist()] for name, column in rows.values.items()}
            put({"table": table, "row": row, **values})
        counts[table] = len(rows.index)
    put({_END: {"rows": counts, "sha256": digest.hexdigest()}})
    return sum(counts.values())


def read_jsonl(source: TextIO, name: str = "import") -> Stored:
    """Return what :func:`write_jsonl` wrote, once all of it is checked.

    Raises:
        StoreError: naming ``name``, the line and the field: not JSON, of another schema, of an unknown table, or a
            field is missing or holds something else. Or the file was cut off or altered, or a row names one that is
            not there, or a node is none that a memory may take in.
    """
    digest = hashlib.sha256()
    lines = _lines(source, name, digest)
    try:
        number, about = next(lines)
    except StopIteration:
        raise StoreError(f"{name}: empty") from None
    if about.get("schema") != SCHEMA:
        raise StoreError(f"{name} line {number}: schema {about.get('schema')}, this version reads {SCHEMA}")
    head = f"{name} line {number}"
    sequence, stamp_ns = (_field(about, key, int, head) for key in ("sequence", "stamp_ns"))
    try:
        graph_head(stamp_ns, sequence)
    except EngramError as error:
        raise StoreError(f"{head}: {error}") from error
    rest = _field(about, "about", dict, head)
    rows: dict[str, dict[int, Mapping[str, np.ndarray]]] = {table: {} for table in TABLES}
    for number, row in lines:
        where = f"{name} line {number}"
        if _END in row:
            tables = _tables(rows, _field(row, _END, dict, where), digest.hexdigest(), where)
            if next(lines, None) is not None:
                raise StoreError(f"{where}: lines follow the end line")
            check_references(tables, name)
            _check_nodes(tables, name)
            return Stored(tables, sequence, stamp_ns, rest)
        _put(rows, row, where)
    raise StoreError(
        f"{name}: ends with line {number}, and that is no end line: the file was cut off, or an earlier version of "
        "Engram wrote it; export the memory again, or import the file with that version"
    )


def _put(rows: Mapping[str, dict[int, Mapping[str, np.ndarray]]], row: Mapping[str, Any], where: str) -> None:
    """Put the values of one line into ``rows``, table -> number of the row -> column -> values."""
    if row.get("table") not in TABLES:
        raise StoreError(f"{where}: table {row.get('table')!r}, valid: {', '.join(TABLES)}")
    index = _field(row, "row", int, where)
    if index < 0:
        raise StoreError(f"{where}: field 'row': {index}, expected 0 or above")
    rows[row["table"]][index] = {key: _values(row, key, column, where) for key, column in TABLES[row["table"]].items()}


def _check_nodes(tables: Tables, name: str) -> None:
    """Raise StoreError where a node is none that a memory may take in. What it says stays as it is."""
    try:
        for _, node, _ in nodes_from(tables):
            try:
                imported(node)
            except EngramError as error:
                raise StoreError(f"{name}: node {node.id!r}: {error}") from error
    except DAMAGED as error:
        raise StoreError(f"{name}: table 'nodes': {error!r}") from error


def _tables(
    rows: Mapping[str, Mapping[int, Mapping[str, np.ndarray]]], end: Mapping[str, Any], digest: str, where: str
) -> Tables:
    """Return ``rows`` as columns; raises StoreError where they are not those that the end line tells of."""
    counts = _field(end, "rows", dict, where)
    tables = {}
    for table, columns in TABLES.items():
        count = _field(counts, table, int, where)
        missing = count - sum(index < count for index in rows[table])
        if missing:
            raise StoreError(f"{where}: {missing} of {count} rows of table {table!r} are missing")
        if len(rows[table]) > count:
            raise StoreError(f"{where}: table {table!r} has row {max(rows[table])}, expected {count} rows")
        tables[table] = {
            key: np.array(
                [rows[table][i][key] for i in range(count)], object if column.dtype == "string" else column.dtype
            ).reshape(count, column.width)
            for key, column in columns.items()
        }
    if _field(end, "sha256", str, where) != digest:
        raise StoreError(f"{where}: the lines before it were altered: their SHA-256 is {digest}")
    return tables


def store_all(path: Path, stored: Stored) -> int:
    """Write ``stored`` into a new store at ``path``; return its sequence.

    Raises:
        StoreError: there is a memory in ``path`` already.
    """
    store = GraphStore(path)
    try:
        if store.load() is not None:
            raise StoreError(f"{path}: holds a memory already; import into a new folder and merge that")
        return store.commit(whole(stored.tables), stored.sequence, stored.stamp_ns, stored.about)
    finally:
        store.close()


def to_networkx(graph: GraphUpdate) -> nx.DiGraph:
    """Return nodes and relations of ``graph`` with the attributes that GraphML knows: text and numbers."""
    out = nx.DiGraph(stamp_ns=str(graph.stamp_ns), sequence=graph.sequence)
    for node in graph.nodes:
        numbers = {**_named("", "xyz", node.pose.position), **_named("q", "wxyz", node.pose.quaternion),
                   **_named("size_", "xyz", node.size), **_named("color_", "rgb", node.color)}  # fmt: skip
        out.add_node(
            printable(node.id), layer=node.layer, label=printable(node.label), state=node.state, belief=node.belief,
            **numbers, frame=printable(node.pose.frame), observations=node.observations,
            first_seen_ns=str(node.first_seen_ns), last_seen_ns=str(node.last_seen_ns),
            first_evidence=printable(node.first_evidence), last_evidence=printable(node.last_evidence),
            covariance=json.dumps(node.position_covariance.tolist()),
            embedding=base64.b64encode(node.embedding.astype("<f4").tobytes()).decode(),
            embodiment="" if node.embodiment is None else json.dumps(asdict(node.embodiment)),
        )  # fmt: skip
    out.add_edges_from(
        (printable(edge.source), printable(edge.target), {"relation": edge.relation}) for edge in graph.edges
    )
    return out


def from_networkx(graph: nx.DiGraph, name: str = "import") -> GraphUpdate:
    """Return what :func:`to_networkx` made, bit for bit; of other graphs, a node needs its layer, label, x, y and z.

    Raises:
        StoreError: naming ``name`` and the node that lacks one of them or has a value that is none.
    """
    nodes = []
    for node_id, data in graph.nodes(data=True):
        try:
            nodes.append(_node(str(node_id), data))
        except (*DAMAGED, EngramError) as error:
            raise StoreError(f"{name} node {node_id!r}: {error!r}") from error
    edges = (SceneEdge(str(a), str(b), str(relation)) for a, b, relation in graph.edges(data="relation") if relation)
    try:
        head = graph_head(int(graph.graph.get("stamp_ns", 0)), int(graph.graph.get("sequence", 1)))
    except DAMAGED as error:
        raise StoreError(f"{name}: stamp_ns or sequence of the graph: {error}") from error
    return GraphUpdate(*head, True, tuple(nodes), tuple(sorted(edges, key=str)))


def read_graphml(path: Path) -> GraphUpdate:
    """Return the graph in a file of GraphML; raises StoreError naming it."""
    try:
        graph = nx.read_graphml(path)
    except (OSError, ElementTree.ParseError, nx.NetworkXError) as error:
        raise StoreError(f"{path}: not GraphML ({error})") from error
    return from_networkx(graph, str(path))


def _node(node_id: str, data: Mapping[str, Any]) -> SceneNode:
    text = {key: str(value) for key, value in data.items()}
    turn = _array(data, "q", "wxyz", (1.0, 0.0, 0.0, 0.0))
    pose = Pose(_array(data, "", "xyz"), turn, text.get("frame", "map"))
    vector = np.frombuffer(base64.b64decode(text.get("embedding", "")), "<f4")
    return imported(SceneNode(
        node_id, text["layer"], text["label"], pose,
        np.array(json.loads(data["covariance"])) if "covariance" in data else np.eye(3) * 1e-2,
        _array(data, "size_", "xyz", (0.1,) * 3), _array(data, "color_", "rgb", (0.5,) * 3),
        vector.astype(np.float32) if len(vector) else np.zeros(EMBEDDING_DIM, np.float32),
        float(data.get("belief", 0.9)), text.get("state", "unseen"), int(data.get("first_seen_ns", 0)),
        int(data.get("last_seen_ns", 0)), int(data.get("observations", 1)), text.get("first_evidence", ""),
        text.get("last_evidence", ""), imported_embodiment(json.loads(text.get("embodiment") or "null")),
    ))  # fmt: skip


def _named(prefix: str, axes: str, values: np.ndarray) -> dict[str, float]:
    return {prefix + axis: value for axis, value in zip(axes, values.tolist(), strict=True)}


def _array(data: Mapping[str, Any], prefix: str, axes: str, default: tuple[float, ...] | None = None) -> np.ndarray:
    if default is not None and prefix + axes[0] not in data:
        return np.array(default)
    return np.array([float(data[prefix + axis]) for axis in axes])


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


_KINDS = {int: "a whole number", list: "a list", dict: "an object", str: "a text"}


def _field(row: Mapping[str, Any], key: str, kind: type, where: str) -> Any:
    if key not in row:
        raise StoreError(f"{where}: field {key!r} is missing")
    value = row[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise StoreError(f"{where}: field {key!r}: {value!r}, expected {_KINDS[kind]}")
    return value


def _values(row: Mapping[str, Any], key: str, column: Column, where: str) -> np.ndarray:
    """Return the values (width,) of one row of a column."""
    values, text = _field(row, key, list, where), column.dtype == "string"
    kinds = str if text else int if column.dtype.startswith("i") else int | float
    try:
        if len(values) == column.width and all(isinstance(value, kinds) for value in values):
            if text:
                return np.array([_readable(value, row["table"]) for value in values], object)
            with np.errstate(over="ignore"):
                numbers = np.array(values, column.dtype)
            if np.isfinite(numbers).all():
                return numbers
    except (OverflowError, ValueError, RecursionError):  # a number that the column has no room for, or no JSON
        pass
    raise StoreError(f"{where}: field {key!r}: {str(values)[:200]}, expected {column.width} x {column.dtype}")


def _readable(text: str, table: str) -> str:
    """Return a text without halves of characters: those of ``words`` are plain, all others JSON."""
    return text.encode(errors="replace").decode() if table == "words" else readable_json(text)


def _lines(source: TextIO, name: str, digest: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each line with its number; ``digest`` has seen all lines before it."""
    for number, line in enumerate(_text(source, name), 1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{name} line {number}: {error}") from error
        if not isinstance(value, dict):
            raise StoreError(f"{name} line {number}: {type(value).__name__}, expected an object")
        yield number, value
        digest.update(line.encode())


def _text(source: TextIO, name: str) -> Iterator[str]:
    try:
        yield from source
    except UnicodeDecodeError as error:
        raise StoreError(f"{name}: {error}") from error
