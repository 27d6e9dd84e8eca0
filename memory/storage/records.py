"""Tables of the store, and conversion of nodes, facts and records to their rows."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engram.core.errors import InvalidInputError
from engram.core.types import EMBEDDING_DIM, Pose, Record, SceneNode
from engram.memory.storage.columns import LAYER_CODE, LAYERS, STATES, NodeColumns, NodeText
from engram.memory.storage.fact_columns import FOREVER, SURE, TIMES
from engram.memory.storage.history import History

SCHEMA = {"name": "engram.memory", "version": 2}


@dataclass(frozen=True)
class Column:
    """One array of a table; a commit rewrites every chunk that it touches, so chunks are small."""

    dtype: str
    width: int  # values a row
    chunk: int  # rows a chunk


TABLES: Mapping[str, Mapping[str, Column]] = {
    "nodes": {
        "number": Column("f8", 23, 64),  # position 3, quaternion 4, covariance 9, size 3, color 3, belief
        "time": Column("i8", 4, 64),  # first seen ns, last seen ns, observations, 1 = in use
        "text": Column("string", 1, 64),  # JSON: id, layer, label, state, frame, evidence, votes
    },
    "embeddings": {"embedding": Column("f4", EMBEDDING_DIM, 32)},  # row of the node
    "facts": {
        "place": Column("f4", 3, 256),
        "time": Column("i8", 6, 256),
        "code": Column("i4", 9, 256),
        "sure": Column("i8", 2, 256),  # from when to when it was an answer; blank = by an earlier version
    },
    "words": {"text": Column("string", 1, 256)},
    "looked": {"cell": Column("i8", 2, 256)},  # packed cell, stamp ns
    "records": {"text": Column("string", 1, 64)},  # JSON: store, key, data; empty = free
    "vectors": {"vector": Column("f4", EMBEDDING_DIM, 32)},  # row of the record
}
RECORD_BYTES = 250
"""RAM of a record's row number; tracemalloc."""
FACT_CODES = ("sights", "node", "label", "relation", "target", "camera", "last_camera", "present", "used")
"""What the integers of a fact are, in their order in the column ``code``."""


@dataclass(frozen=True)
class Rows:
    """Rows of one table to be written."""

    index: np.ndarray  # (n,) int64, which rows
    values: Mapping[str, np.ndarray]  # column -> (n, width)


def strings(texts: Sequence[str]) -> np.ndarray:
    """Return one row (n, 1) a text."""
    return np.array(list(texts), dtype=object).reshape(-1, 1)


def row_hashes(index: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return one uint64 a row: equal bytes in an equal row, equal hash. Sums of them are a table's digest.

    Words of 8 bytes are multiplied by odd constants (multiply-shift hashing) and mixed with the row's number.
    """
    with np.errstate(over="ignore"):
        if values.dtype == object or values.dtype.kind in "UT":
            mixed: np.ndarray = np.array([_text_hash(str(text)) for text in values[:, 0]], np.uint64).reshape(-1)
        else:
            raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
            padded = np.zeros((len(raw), -(-raw.shape[1] // 8) * 8), np.uint8)
            padded[:, : raw.shape[1]] = raw
            words = padded.view(np.uint64)
            weights = np.random.default_rng(1).integers(0, 2**63, words.shape[1], np.uint64) * np.uint64(2)
            weights += np.uint64(1)
            mixed = (words * weights).sum(axis=1, dtype=np.uint64)
        mixed ^= index.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
        return mixed ^ (mixed >> np.uint64(29))


def _text_hash(text: str) -> int:
    data = text.encode()
    return zlib.crc32(data) << 32 | zlib.crc32(data[::-1], len(data))


# -- nodes -----------------------------------------------------------------------------------------------------------


def node_rows(columns: NodeColumns) -> dict[str, Rows]:
    """Return what changed in the nodes since the last commit."""
    rows = np.array(sorted(columns.changed), np.int64)
    freed = np.array(sorted(columns.freed), np.int64)
    index = np.concatenate((rows, freed))
    nodes = columns.nodes(rows)
    texts = [_node_text(node, columns.about(int(row)).votes) for node, row in zip(nodes, rows, strict=True)]
    times = [(node.first_seen_ns, node.last_seen_ns, node.observations, 1) for node in nodes]
    values = {
        "number": np.array([*map(_numbers, nodes), *[np.zeros(23)] * len(freed)], np.float64).reshape(-1, 23),
        "time": np.array([*times, *[(0, 0, 0, 0)] * len(freed)], np.int64).reshape(-1, 4),
        "text": strings([*texts, *[""] * len(freed)]),
    }
    looks = np.array(sorted(columns.changed_embedding), np.int64)
    return {"nodes": Rows(index, values), "embeddings": Rows(looks, {"embedding": columns.embedding[looks]})}


def nodes_from(tables: Mapping[str, Mapping[str, np.ndarray]]) -> list[tuple[int, SceneNode, dict[str, float]]]:
    """Return row, node and label votes of every stored node, oldest first; the checks of SceneNode apply."""
    numbers, times, texts = (tables["nodes"][name] for name in ("number", "time", "text"))
    embeddings = tables["embeddings"]["embedding"]
    found = []
    for row in np.flatnonzero(times[:, 3]).tolist():
        found.append((row, *_node(numbers[row], times[row], str(texts[row, 0]), embeddings[row])))
    return sorted(found, key=lambda one: (one[1].first_seen_ns, one[1].id))


def restore_nodes(columns: NodeColumns, tables: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Fill empty columns straight from the stored ones, with the checks of SceneNode.

    Raises:
        InvalidInputError: naming the first node with a value that no node may have.
    """
    number, time = tables["nodes"]["number"], tables["nodes"]["time"]
    rows = np.flatnonzero(time[:, 3])
    found = json.loads("[" + ",".join(tables["nodes"]["text"][rows, 0]) + "]")
    order = np.array(sorted(range(len(rows)), key=lambda i: (int(time[rows[i], 0]), found[i][0])), np.int64)
    rows, found = rows[order], [found[i] for i in order.tolist()]
    number, time, embedding = number[rows], time[rows], tables["embeddings"]["embedding"][rows]
    sound = np.isfinite(number).all(axis=1) & np.isfinite(embedding).all(axis=1)
    sound &= (np.abs(np.linalg.norm(number[:, 3:7], axis=1) - 1.0) <= 1e-3) & (np.abs(number[:, 22] - 0.5) <= 0.5)
    sound &= np.array([node[1] in LAYERS and node[3] in STATES for node in found], bool)
    if not sound.all():
        bad = found[int(np.argmin(sound))]
        raise InvalidInputError(f"stored node {bad[0]!r}: layer {bad[1]!r}, state {bad[3]!r} or a number is not valid")
    known: dict[str, str] = {}

    def same(word: str) -> str:  # one string for all nodes that share it
        return known.setdefault(word, word)

    texts = [
        NodeText(
            node_id, same(layer), same(label), same(frame),
            same(first.rpartition("@")[0]), same(last.rpartition("@")[0]), votes,
        )
        for node_id, layer, label, _, frame, first, last, votes in found
    ]  # fmt: skip
    columns.restore(
        rows, texts,
        {
            "position": number[:, 0:3], "quaternion": number[:, 3:7], "covariance": number[:, 7:16].reshape(-1, 3, 3),
            "size": number[:, 16:19], "color": number[:, 19:22], "belief": number[:, 22], "embedding": embedding,
            "state": np.array([STATES.index(node[3]) for node in found], np.int8),
            "layer": np.array([LAYER_CODE[node[1]] for node in found], np.int8),
            "first_ns": time[:, 0], "last_ns": time[:, 1], "sights": time[:, 2],
        },
    )  # fmt: skip


def node_as_json(node: SceneNode, votes: Mapping[str, float]) -> dict[str, Any]:
    """Return a node as JSON values, embedding included."""
    times = [node.first_seen_ns, node.last_seen_ns, node.observations]
    return {
        "text": _node_text(node, votes), "number": _numbers(node).tolist(), "time": times,
        "embedding": node.embedding.tolist(),
    }  # fmt: skip


def node_from_json(stored: Mapping[str, Any]) -> tuple[SceneNode, dict[str, float]]:
    """Return the node and its votes; the inverse of :func:`node_as_json`."""
    embedding = np.array(stored["embedding"], np.float32)
    return _node(np.array(stored["number"], np.float64), np.array(stored["time"]), stored["text"], embedding)


def _node_text(node: SceneNode, votes: Mapping[str, float]) -> str:
    return json.dumps(
        [node.id, node.layer, node.label, node.state, node.pose.frame, node.first_evidence, node.last_evidence,
         dict(votes)], ensure_ascii=False,
    )  # fmt: skip


def _node(number: np.ndarray, time: np.ndarray, text: str, embedding: np.ndarray) -> tuple[SceneNode, dict[str, float]]:
    node_id, layer, label, state, frame, first, last, votes = json.loads(text)
    node = SceneNode(
        node_id, layer, label, Pose(number[0:3], number[3:7], frame), number[7:16].reshape(3, 3), number[16:19],
        number[19:22], embedding, float(number[22]), state, int(time[0]), int(time[1]), int(time[2]), first, last,
    )  # fmt: skip
    return node, votes


def _numbers(node: SceneNode) -> np.ndarray:
    parts = (node.pose.position, node.pose.quaternion, node.position_covariance.ravel(), node.size, node.color)
    return np.concatenate((*parts, (node.belief,)))


# -- facts -----------------------------------------------------------------------------------------------------------


def fact_rows(history: History) -> dict[str, Rows]:
    """Return what changed in the history since the last commit."""
    rows = np.array(sorted(history.changed), np.int64)
    values = {
        "place": history.place[rows],
        "time": np.stack([getattr(history, name)[rows] for name in TIMES], axis=-1).reshape(-1, 6),
        "code": np.stack([getattr(history, name)[rows].astype(np.int32) for name in FACT_CODES], -1).reshape(-1, 9),
        "sure": np.stack([getattr(history, name)[rows] for name in SURE], axis=-1).reshape(-1, 2),
    }
    index = np.array(sorted(history.changed_words), np.int64)
    words = strings([history.words[number] for number in index.tolist()])
    return {"facts": Rows(rows, values), "words": Rows(index, {"text": words})}


def restore_history(history: History, tables: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Fill an empty history."""
    facts = tables["facts"]
    if not len(facts["code"]):
        return
    columns = {"place": facts["place"]}
    columns |= {name: facts["time"][:, i] for i, name in enumerate(TIMES)}
    columns |= {name: facts["code"][:, i] for i, name in enumerate(FACT_CODES)}
    sure = np.zeros((len(facts["code"]), 2), np.int64)
    sure[: len(facts["sure"])] = facts["sure"]
    blank = sure[:, 1] == 0  # of an earlier version, which took every fact for an answer
    sure[blank] = np.column_stack((columns["believed_from"], np.full(len(sure), FOREVER)))[blank]
    columns |= {name: sure[:, i] for i, name in enumerate(SURE)}
    history.restore(columns, [str(word) for word in tables["words"]["text"][:, 0]])


# -- looks -----------------------------------------------------------------------------------------------------------


class LookedTable:
    """Rows for the cells that were looked at; those of forgotten cells are blank and used again."""

    def __init__(self) -> None:
        self._row_of: dict[int, int] = {}
        self._free: list[int] = []
        self._blank: set[int] = set()  # rows to be blanked by the next commit that succeeds

    def rows(self, changed: Mapping[int, int], forgotten: Collection[int]) -> Rows:
        """Return the rows of ``changed`` (cell -> stamp) and blank ones for ``forgotten`` cells."""
        freed = [self._row_of.pop(cell) for cell in sorted(forgotten) if cell in self._row_of]
        taken = []
        for cell in changed:
            if cell not in self._row_of:
                self._row_of[cell] = self._free.pop() if self._free else len(self._row_of) + len(freed)
            taken.append(self._row_of[cell])
        self._free += freed
        self._blank.update(freed)
        self._blank.difference_update(taken)
        blank = sorted(self._blank)
        values = np.array([*changed.items(), *[(0, 0)] * len(blank)], np.int64).reshape(-1, 2)
        return Rows(np.array([*taken, *blank], np.int64), {"cell": values})

    def forget_changes(self) -> None:
        """Mark all changes as durable."""
        self._blank.clear()

    def restore(self, tables: Mapping[str, Mapping[str, np.ndarray]]) -> dict[int, int]:
        """Restore stored rows and return cell -> stamp."""
        cells = tables["looked"]["cell"]
        self._free = np.flatnonzero(cells[:, 0] == 0)[::-1].tolist()
        used = np.flatnonzero(cells[:, 0])
        self._row_of = dict(zip(cells[used, 0].tolist(), used.tolist(), strict=True))
        return dict(zip(*cells[used].T.tolist(), strict=True))


# -- records of the other stores -------------------------------------------------------------------------------------


class RecordTable:
    """Rows for the records of several stores, each by (store, key)."""

    def __init__(self) -> None:
        self._row_of: dict[tuple[str, str], int] = {}
        self._free: list[int] = []
        self._top = 0
        self._pending: dict[int, tuple[str, Record | None]] = {}

    def __len__(self) -> int:
        """Return how many records there are."""
        return len(self._row_of)

    def put(self, store: str, record: Record) -> None:
        """Add or replace a record."""
        row = self._row_of.get((store, record.key))
        if row is None:
            row = self._free.pop() if self._free else self._top
            self._top = max(self._top, row + 1)
            self._row_of[store, record.key] = row
        self._pending[row] = (store, record)

    def remove(self, store: str, key: str) -> None:
        """Forget a record; one that is not there is no error."""
        row = self._row_of.pop((store, key), None)
        if row is not None:
            self._pending[row] = (store, None)
            self._free.append(row)

    def rows(self) -> dict[str, Rows]:
        """Return what changed since the last :meth:`forget_changes`."""
        index = np.array(sorted(self._pending), np.int64)
        texts, with_vector, vectors = [], [], []
        for row in index.tolist():
            store, record = self._pending[row]
            if record is None:
                texts.append("")
                continue
            texts.append(json.dumps([store, record.key, dict(record.data), record.vector is not None]))
            if record.vector is not None:
                with_vector.append(row)
                vectors.append(record.vector)
        vector_rows = np.array(vectors, np.float32).reshape(-1, EMBEDDING_DIM)
        return {
            "records": Rows(index, {"text": strings(texts)}),
            "vectors": Rows(np.array(with_vector, np.int64), {"vector": vector_rows}),
        }

    def forget_changes(self) -> None:
        """Mark all changes as durable."""
        self._pending.clear()

    def restore(self, tables: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, list[Record]]:
        """Restore stored rows and return the records by store, in the order of their rows."""
        found: dict[str, list[Record]] = {}
        texts, vectors = tables["records"]["text"], tables["vectors"]["vector"]
        self._top = len(texts)
        for row, text in enumerate(str(text) for text in texts[:, 0]):
            if not text:
                self._free.append(row)
                continue
            store, key, data, has_vector = json.loads(text)
            found.setdefault(store, []).append(Record(key, data, vectors[row] if has_vector else None))
            self._row_of[store, key] = row
        return found
