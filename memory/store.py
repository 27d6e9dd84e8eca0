"""The store of record: node columns in zarr 3, made atomic and versioned by icechunk."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from engram.core.errors import EngramError, StoreError
from engram.core.lock import WriterLock
from engram.core.types import SceneNode
from engram.memory.records import COLUMNS, SCHEMA, from_row, to_rows

_BRANCH = "main"
# what icechunk, zarr and its codecs raise for files that are missing, cut or altered
_UNREADABLE = (icechunk.IcechunkError, EngramError, ValueError, RuntimeError, KeyError, OSError, TypeError)
# icechunk warns that folders are unsafe for several writers; WriterLock sees to that
icechunk.set_logs_filter("error")


@dataclass(frozen=True)
class GraphStoreConfig:
    """What a store keeps."""

    keep_snapshots: int = 500
    """Older snapshots are expired and their chunks deleted."""
    expire_every: int = 250
    """Commits between two expiries."""


@dataclass(frozen=True)
class Snapshot:
    """One committed state."""

    id: str
    sequence: int
    written_at: datetime.datetime


@dataclass(frozen=True)
class StoredGraph:
    """What a snapshot holds."""

    nodes: tuple[SceneNode, ...]
    sequence: int
    stamp_ns: int
    issued: Mapping[str, int]


class GraphStore:
    """A folder with one writer; a commit is atomic, and what it acknowledged survives kill -9.

    The files are not fsynced: a power cut may take the last seconds, never the consistency of what is left.

    Raises:
        StoreError: the folder is being written by another process, is damaged (naming the path, the snapshot and
            the newest one that is still good) or has another schema.
    """

    def __init__(self, path: Path | str, config: GraphStoreConfig | None = None) -> None:
        self.path = Path(path)
        self.config = config or GraphStoreConfig()
        self._lock = WriterLock(self.path)
        try:
            self._repository = _open(self.path, create=True)
            self._loaded, self._row_of = _read(self.path, self._repository, None)
        except BaseException:
            self._lock.release()
            raise
        self._durable = self._loaded.sequence if self._loaded else 0
        self._commits = 0

    def load(self) -> StoredGraph | None:
        """Return the newest committed state as it was when the store was opened; None in a new store."""
        return self._loaded

    def commit(
        self,
        nodes: Sequence[SceneNode],
        removed: Collection[str],
        sequence: int,
        stamp_ns: int,
        issued: Mapping[str, int],
    ) -> int:
        """Write changed ``nodes`` and forget ``removed`` in one atomic step; return the durable sequence.

        Nothing is written when ``sequence`` is already durable and nothing changed.
        """
        if not nodes and not removed and sequence == self._durable:
            return self._durable
        session = self._repository.writable_session(_BRANCH)
        root = zarr.open_group(session.store, mode="a")
        row_of = dict(self._row_of)
        freed = [row_of.pop(node_id) for node_id in sorted(removed) if node_id in row_of]
        used = set(row_of.values())
        free = iter([row for row in range(len(used) + len(freed) + len(nodes)) if row not in used])
        rows = [row_of.setdefault(node.id, -1) for node in nodes]
        for i, node in enumerate(nodes):
            if rows[i] < 0:
                rows[i] = row_of[node.id] = next(free)
        _write(root, nodes, rows, [row for row in freed if row not in rows])
        about: dict[str, Any] = {"schema": SCHEMA, "sequence": sequence, "stamp_ns": stamp_ns, "issued": dict(issued)}
        root.attrs.update(about)
        session.commit(f"sequence {sequence}", metadata={"sequence": sequence})
        self._row_of, self._durable = row_of, sequence
        self._commits += 1
        if self._commits % self.config.expire_every == 0:
            self.expire(self.config.keep_snapshots)
        return sequence

    def snapshots(self) -> tuple[Snapshot, ...]:
        """Return the committed states, newest first."""
        return _snapshots(self._repository)

    def expire(self, keep: int) -> int:
        """Delete all but the newest ``keep`` snapshots and what only they held; return how many went."""
        known = self.snapshots()
        if len(known) <= keep:
            return 0
        self._repository.expire_snapshots(older_than=known[keep - 1].written_at)
        self._repository.garbage_collect(datetime.datetime.now(datetime.UTC))
        return len(known) - len(self.snapshots())

    def close(self) -> None:
        """Let the next writer in; may be called twice. Uncommitted changes were never here."""
        self._lock.release()


def read_snapshot(path: Path | str, snapshot: str | None = None) -> StoredGraph | None:
    """Read a snapshot (None = the newest) without a lock, also while another process writes."""
    return _read(Path(path), _open(Path(path), create=False), snapshot)[0]


def list_snapshots(path: Path | str) -> tuple[Snapshot, ...]:
    """Return the snapshots of the store at ``path``, newest first, without a lock."""
    return _snapshots(_open(Path(path), create=False))


def _open(path: Path, create: bool) -> icechunk.Repository:
    folder = path / "graph"
    storage = icechunk.local_filesystem_storage(str(folder))
    try:
        if icechunk.Repository.exists(storage):
            return icechunk.Repository.open(storage)
        if create and not (folder.exists() and any(folder.iterdir())):
            return icechunk.Repository.create(storage)
    except _UNREADABLE as error:
        raise StoreError(f"{path}: the store's list of snapshots is damaged: {_first_line(error)}") from error
    raise StoreError(f"{path}: no memory store there" + (", but files of a damaged one" if folder.exists() else ""))


def _snapshots(repository: icechunk.Repository) -> tuple[Snapshot, ...]:
    return tuple(
        Snapshot(info.id, int(info.metadata["sequence"]), info.written_at)
        for info in repository.ancestry(branch=_BRANCH)
        if "sequence" in info.metadata  # the first, empty one has none
    )


def _read(
    path: Path, repository: icechunk.Repository, snapshot: str | None
) -> tuple[StoredGraph | None, dict[str, int]]:
    try:
        known = _snapshots(repository)
    except _UNREADABLE as error:
        raise StoreError(f"{path}: the store's history is damaged: {_first_line(error)}") from error
    if not known and snapshot is None:
        return None, {}
    wanted = snapshot or known[0].id
    if wanted not in {one.id for one in known}:
        raise StoreError(f"{path}: no snapshot {wanted!r}; newest: {', '.join(one.id for one in known[:5])}")
    try:
        return _read_one(repository, wanted)
    except _UNREADABLE as error:
        good = next((one for one in known if one.id != wanted and _is_good(repository, one.id)), None)
        hint = f"the newest good one is {good.id} (sequence {good.sequence})" if good else "no other one is good"
        raise StoreError(f"{path}: snapshot {wanted} cannot be read ({_first_line(error)}); {hint}") from error


def _is_good(repository: icechunk.Repository, snapshot: str) -> bool:
    try:
        _read_one(repository, snapshot)
    except _UNREADABLE:
        return False
    return True


def _read_one(repository: icechunk.Repository, snapshot: str) -> tuple[StoredGraph, dict[str, int]]:
    root = zarr.open_group(repository.readonly_session(snapshot_id=snapshot).store, mode="r")
    attributes: Mapping[str, Any] = dict(root.attrs)
    if attributes.get("schema") != SCHEMA:
        raise StoreError(f"schema {attributes.get('schema')}, this version reads {SCHEMA}")
    columns = {name: np.asarray(_column(root, name)[:]) for name in COLUMNS}
    nodes, row_of = [], {}
    for row in np.flatnonzero(columns["time"][:, 3]):
        node = from_row(*(columns[name][row] for name in ("number", "time", "embedding", "text")))
        nodes.append(node)
        row_of[node.id] = int(row)
    nodes.sort(key=lambda node: (node.first_seen_ns, node.id))
    graph = StoredGraph(tuple(nodes), attributes["sequence"], attributes["stamp_ns"], attributes["issued"])
    return graph, row_of


def _write(root: zarr.Group, nodes: Sequence[SceneNode], rows: Sequence[int], freed: Sequence[int]) -> None:
    for name, (dtype, width, chunk) in COLUMNS.items():
        if name not in root:
            codecs = [ZstdCodec(level=1), Crc32cCodec()]  # the checksum finds flipped bits when a chunk is read
            root.create_array(name, shape=(0, width), chunks=(chunk, width), dtype=dtype, compressors=codecs)
    length = max([_column(root, "time").shape[0], *(row + 1 for row in rows)])
    values = to_rows(nodes)
    order = np.argsort(rows)
    for name, (_, width, _) in COLUMNS.items():
        column = _column(root, name)
        if column.shape[0] < length:
            column.resize((length, width))
        if len(rows):
            column.oindex[np.asarray(rows)[order]] = values[name][order]
    if len(freed):
        _column(root, "time").oindex[np.sort(freed)] = 0


def _column(root: zarr.Group, name: str) -> zarr.Array:
    array = root[name]
    if not isinstance(array, zarr.Array):
        raise StoreError(f"column {name!r}: a group, expected an array")
    return array


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error).strip() else ''}"
