"""A memory out to other tools and in again: JSON lines (everything), networkx GraphML (the graph of one instant)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import networkx as nx
import numpy as np

from engram.core.errors import StoreError
from engram.core.types import GraphUpdate
from engram.memory.records import SCHEMA, TABLES
from engram.memory.store import GraphStore, Stored, whole


def write_jsonl(stored: Stored, out: TextIO) -> int:
    """Write every row of every table, one a line, under a header line; return the number of rows.

    Arrays are lists of numbers: Python's JSON gives each float64 and float32 back bit for bit.
    """
    about = {"schema": SCHEMA, "sequence": stored.sequence, "stamp_ns": stored.stamp_ns, "about": dict(stored.about)}
    out.write(json.dumps(about) + "\n")
    count = 0
    for table, columns in stored.tables.items():
        for row in range(len(next(iter(columns.values())))):
            values = {name: [_plain(v) for v in column[row].tolist()] for name, column in columns.items()}
            out.write(json.dumps({"table": table, "row": row, **values}, ensure_ascii=False) + "\n")
            count += 1
    return count


def read_jsonl(source: TextIO, name: str = "import") -> Stored:
    """Return what :func:`write_jsonl` wrote.

    Raises:
        StoreError: naming ``name`` and the line: not JSON, of another schema, or of an unknown table.
    """
    lines = _lines(source, name)
    try:
        number, about = next(lines)
    except StopIteration:
        raise StoreError(f"{name}: empty") from None
    if about.get("schema") != SCHEMA:
        raise StoreError(f"{name} line {number}: schema {about.get('schema')}, this version reads {SCHEMA}")
    rows: dict[str, dict[int, Mapping[str, Any]]] = {table: {} for table in TABLES}
    for number, row in lines:
        if row.get("table") not in TABLES:
            raise StoreError(f"{name} line {number}: table {row.get('table')!r}, valid: {', '.join(TABLES)}")
        rows[row["table"]][int(row["row"])] = row
    tables = {}
    for table, columns in TABLES.items():
        length = max(rows[table], default=-1) + 1
        if len(rows[table]) != length:
            raise StoreError(f"{name}: {length - len(rows[table])} rows of table {table!r} are missing")
        tables[table] = {
            key: np.array(
                [rows[table][i][key] for i in range(length)], object if column.dtype == "string" else column.dtype
            ).reshape(length, column.width)
            for key, column in columns.items()
        }
    return Stored(tables, about["sequence"], about["stamp_ns"], about["about"])


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
        x, y, z = node.pose.position.tolist()
        sx, sy, sz = node.size.tolist()
        out.add_node(
            node.id, layer=node.layer, label=node.label, state=node.state, belief=node.belief, x=x, y=y, z=z,
            size_x=sx, size_y=sy, size_z=sz, frame=node.pose.frame, observations=node.observations,
            first_seen_ns=str(node.first_seen_ns), last_seen_ns=str(node.last_seen_ns),
            first_evidence=node.first_evidence, last_evidence=node.last_evidence,
            embodiment="" if node.embodiment is None else json.dumps(asdict(node.embodiment)),
        )  # fmt: skip
    out.add_edges_from((edge.source, edge.target, {"relation": edge.relation}) for edge in graph.edges)
    return out


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _lines(source: TextIO, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(source, 1):
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise StoreError(f"{name} line {number}: {error}") from error
        if not isinstance(value, dict):
            raise StoreError(f"{name} line {number}: {type(value).__name__}, expected an object")
        yield number, value
