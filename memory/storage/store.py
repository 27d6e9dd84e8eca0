"""The store of record: tables of columns in zarr 3, made atomic and versioned by icechunk.

Damage is found, never read: each chunk ends with a CRC-32C, each snapshot carries a digest of every row and a checksum
of its own attributes, and ``head.json`` beside the repository holds the hash of its list of snapshots.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import icechunk
import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from engram.core.errors import StoreError
from engram.core.lock import WriterLock
from engram.memory.storage.disk_budget import DiskBudget
from engram.memory.storage.icechunk_errors import panics_as_errors
from engram.memory.storage.migrations import MIGRATIONS
from engram.memory.storage.records import SCHEMA, TABLES, Column, Rows, row_hashes, strings

_BRANCH = "main"
_HEAD, _BACKUP = "head.json", "snapshots.backup"
_MANIFEST_CHUNKS = 1000
_MANY_CHUNKS = 512
"""A table that is written whole (import, repair) gets larger chunks rather than more: reading costs by the chunk."""
# icechunk warns that folders are unsafe for several writers; WriterLock sees to that
icechunk.set_logs_filter("error")

Tables = Mapping[str, Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class GraphStoreConfig:
    """What a store keeps."""

    keep_snapshots: int = 500
    """Older snapshots are expired and their chunks deleted."""
    expire_every: int = 250
    """Commits between two expiries."""
    budget_mb: float = 512.0
    """Files on disk [MB]; near it the older snapshots go, never the newest, which the budget in RAM bounds."""


@dataclass(frozen=True)
class Snapshot:
    """One committed state."""

    id: str
    sequence: int
    written_at: datetime.datetime


@dataclass(frozen=True)
class Stored:
    """What a snapshot holds."""

    tables: Tables
    sequence: int
    stamp_ns: int
    about: Mapping[str, Any]  # JSON: id counters and the like


class GraphStore:
    """A folder with one writer; a commit is atomic, and what it acknowledged survives kill -9.

    The files are not fsynced: a power cut may take the last seconds, never the consistency of what is left. Old
    snapshots are deleted on a thread of their own; the next commit waits for it.

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
            self._loaded, self._found_schema = _newest(self.path, self._repository)
        except BaseException:
            self._lock.release()
            raise
        self._hashes: dict[tuple[str, str], np.ndarray] = {}
        if self._loaded and self._found_schema == SCHEMA:
            for table, columns in self._loaded.tables.items():
                self._hashes |= {(table, name): _hash_all(v) for name, v in columns.items() if len(v)}
        self._durable = self._loaded.sequence if self._loaded else 0
        self._commits = 0
        self._budget = DiskBudget(self.path / "graph", int(self.config.budget_mb * (1 << 20)))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="upkeep")
        self._upkeep: Future[object] | None = None

    def load(self) -> Stored | None:
        """Return the newest committed state as it was when the store was opened; None in a new store."""
        return self._loaded

    def commit(self, writes: Mapping[str, Rows], sequence: int, stamp_ns: int, about: Mapping[str, Any]) -> int:
        """Write rows of tables in one atomic step; return the durable sequence.

        Nothing is written when ``sequence`` is already durable and there are no rows.
        """
        if sequence == self._durable and not any(len(rows.index) for rows in writes.values()):
            return self._durable
        self.wait()
        session = self._repository.writable_session(_BRANCH)
        root = zarr.open_group(session.store, mode="a")
        if self._found_schema != SCHEMA and self._loaded:  # of an older version: written anew, whole
            for name in list(root):
                del root[name]
            writes = whole(self._loaded.tables, writes)
        hashes = dict(self._hashes)
        for table, rows in writes.items():
            _write(root, table, rows, hashes)
        attributes: dict[str, Any] = {
            "schema": SCHEMA,
            "sequence": sequence,
            "stamp_ns": stamp_ns,
            "about": dict(about),
        }
        attributes["digests"] = {f"{table}/{name}": _digest(values) for (table, name), values in hashes.items()}
        root.attrs.put({**attributes, "check": _check(attributes)})
        snapshot = session.commit(f"sequence {sequence}", metadata={"sequence": sequence})
        self._write_head(snapshot, sequence)
        self._hashes, self._durable, self._loaded, self._found_schema = hashes, sequence, None, SCHEMA
        self._commits += 1
        if self._budget.share() < 1.0 or self._commits % self.config.expire_every == 0:
            self._upkeep = self._thread.submit(self._thin)
        return sequence

    @property
    def busy(self) -> bool:
        """Whether old snapshots are being deleted: a commit would wait for that."""
        return self._upkeep is not None and not self._upkeep.done()

    def wait(self) -> None:
        """Wait until old snapshots are deleted; raise what went wrong."""
        upkeep, self._upkeep = self._upkeep, None
        if upkeep is not None:
            upkeep.result()

    def snapshots(self) -> tuple[Snapshot, ...]:
        """Return the committed states, newest first."""
        self.wait()
        return _snapshots(self._repository)

    def expire(self, keep: int) -> int:
        """Delete all but the newest ``keep`` snapshots and what only they held; return how many went."""
        self.wait()
        return self._expire(keep)

    def _thin(self) -> None:
        """Delete old snapshots until the files are within the budget: those that go first may be small."""
        self._expire(self.config.keep_snapshots)
        while (share := self._budget.share()) < 1.0:
            if not self._expire(max(1, int(share * len(_snapshots(self._repository))))):
                break

    def _expire(self, keep: int) -> int:
        for old in (self.path / "graph" / "overwritten").glob("repo.*"):  # icechunk keeps every list of snapshots
            old.unlink()
        known = _snapshots(self._repository)
        if len(known) <= keep:
            return 0
        self._repository.expire_snapshots(older_than=known[keep - 1].written_at)
        self._repository.garbage_collect(datetime.datetime.now(datetime.UTC))
        self._write_head(known[0].id, known[0].sequence)
        return len(known) - len(_snapshots(self._repository))

    def close(self) -> None:
        """Let the next writer in; may be called twice. Uncommitted changes were never here."""
        self._thread.shutdown()
        self._lock.release()

    def _write_head(self, snapshot: str, sequence: int) -> None:
        """Write beside the repository what its list of snapshots is, and a copy of it."""
        listed = (self.path / "graph" / "repo").read_bytes()
        head = {"snapshot": snapshot, "sequence": sequence, "sha256": hashlib.sha256(listed).hexdigest()}
        for name, data in ((_BACKUP, listed), (_HEAD, json.dumps(head).encode())):
            temporary = self.path / f"{name}.new"
            temporary.write_bytes(data)
            os.replace(temporary, self.path / name)


def read_snapshot(path: Path | str, snapshot: str | None = None) -> Stored | None:
    """Read a snapshot (None = the newest) without a lock, also while another process writes.

    A snapshot that is named opens as long as it is good itself, whatever else in the store is damaged.
    """
    path = Path(path)
    if snapshot is None:
        return _newest(path, _open(path, create=False))[0]
    if not (path / "graph").exists():
        raise StoreError(f"{path}: no memory store there")
    known: list[Snapshot] = []
    for repository in _sources(path):
        known = known or list(_snapshots(repository))
        if snapshot in {one.id for one in _snapshots(repository)}:
            return _checked(path, repository, snapshot)[0]
    raise StoreError(f"{path}: no snapshot {snapshot!r}; newest: {', '.join(one.id for one in known[:5])}")


def list_snapshots(path: Path | str) -> tuple[Snapshot, ...]:
    """Return the snapshots of the store at ``path``, newest first, without a lock."""
    return _snapshots(_open(Path(path), create=False))


def repair(path: Path | str) -> int:
    """Go on from the newest good snapshot of a damaged store; return its sequence. Past snapshots stay behind.

    The damaged files are kept beside it as ``graph.damaged-<n>``.
    """
    path = Path(path)
    lock = WriterLock(path)
    try:
        good = _newest_good(path)
        if good is None:
            raise StoreError(f"{path}: no snapshot is good any more")
        number = next(n for n in range(1, 10_000) if not (path / f"graph.damaged-{n}").exists())
        os.rename(path / "graph", path / f"graph.damaged-{number}")
        for name in (_HEAD, _BACKUP):
            (path / name).unlink(missing_ok=True)
    finally:
        lock.release()
    store = GraphStore(path)
    try:
        return store.commit(whole(good.tables), good.sequence, good.stamp_ns, good.about)
    finally:
        store.close()


# -- opening ---------------------------------------------------------------------------------------------------------


def _open(path: Path, create: bool) -> icechunk.Repository:
    """Open the repository; its list of snapshots is the one that was written last, or the error says so."""
    folder = path / "graph"
    if not (folder / "repo").exists():
        if create and not (folder.exists() and any(folder.iterdir())):
            return icechunk.Repository.create(icechunk.local_filesystem_storage(str(folder)), _config())
        raise StoreError(f"{path}: no memory store there" + (", but files of a damaged one" if folder.exists() else ""))
    try:
        with panics_as_errors():
            repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder)), _config())
        known = [one.id for one in _snapshots(repository)]
    except Exception as error:
        raise _damaged(path, f"the store's list of snapshots is damaged: {_first_line(error)}") from error
    head = _head(path)
    if head and head["snapshot"] not in known and _list_hash(path) != head["sha256"]:  # it was acknowledged
        raise _damaged(path, f"the store's list of snapshots is damaged: {head['snapshot']} is missing")
    return repository


def _config() -> icechunk.RepositoryConfig:
    """Split long manifests: a commit rewrites only those that it touches."""
    anywhere: Any = {icechunk.ManifestSplitDimCondition.Any(): _MANIFEST_CHUNKS}
    splitting = icechunk.ManifestSplittingConfig.from_dict({icechunk.ManifestSplitCondition.AnyArray(): anywhere})
    return icechunk.RepositoryConfig(manifest=icechunk.ManifestConfig(splitting=splitting))


def _list_hash(path: Path) -> str:
    return hashlib.sha256((path / "graph" / "repo").read_bytes()).hexdigest()


def _head(path: Path) -> Mapping[str, Any] | None:
    try:
        head = json.loads((path / _HEAD).read_bytes())
        return head if {"snapshot", "sequence", "sha256"} <= head.keys() else None
    except (OSError, ValueError, AttributeError):
        return None  # a store of an older version, or a damaged head: the snapshots speak for themselves


def _sources(path: Path) -> Iterator[icechunk.Repository]:
    """Yield the store as far as its list of snapshots can be read: as it is, then through the copy that the last
    commit left of that list."""
    with tempfile.TemporaryDirectory() as folder:
        for entry in (path / "graph").iterdir():
            if entry.is_dir():
                os.symlink(entry.resolve(), Path(folder) / entry.name)
        if (path / _BACKUP).exists():
            shutil.copy(path / _BACKUP, Path(folder) / "repo")
        for source in (path / "graph", Path(folder)):
            try:
                with panics_as_errors():
                    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(source)))
                _snapshots(repository)
            except Exception:  # noqa: BLE001 damaged: see _open
                continue
            yield repository


def _damaged(path: Path, what: str, known_bad: str = "") -> StoreError:
    good = _newest_good_id(path, known_bad)
    hint = f"the newest good one is {good.id} (sequence {good.sequence})" if good else "no other one is good"
    return StoreError(f"{path}: {what}; {hint}; `engram memory repair` goes on from there")


def _newest_good_id(path: Path, known_bad: str = "") -> Snapshot | None:
    found: list[Snapshot] = []
    for repository in _sources(path):
        listed = (one for one in _snapshots(repository) if one.id != known_bad)
        good = next((one for one in listed if _is_good(repository, one.id)), None)
        found += [good] if good else []
    return max(found, key=lambda one: one.sequence, default=None)


def _newest_good(path: Path) -> Stored | None:
    good = _newest_good_id(path)
    return read_snapshot(path, good.id) if good else None


@panics_as_errors()
def _snapshots(repository: icechunk.Repository) -> tuple[Snapshot, ...]:
    return tuple(
        Snapshot(info.id, int(info.metadata["sequence"]), info.written_at)
        for info in repository.ancestry(branch=_BRANCH)
        if "sequence" in info.metadata  # the first, empty one has none
    )


# -- reading ---------------------------------------------------------------------------------------------------------


def _newest(path: Path, repository: icechunk.Repository) -> tuple[Stored | None, Mapping[str, Any]]:
    known = _snapshots(repository)
    if not known:
        return None, SCHEMA
    stored, schema = _checked(path, repository, known[0].id)
    head = _head(path)
    if head and stored.sequence < head["sequence"] and _list_hash(path) != head["sha256"]:
        raise _damaged(path, f"sequence {head['sequence']} was acknowledged, the newest there is {stored.sequence}")
    return stored, schema


def _checked(path: Path, repository: icechunk.Repository, snapshot: str) -> tuple[Stored, Mapping[str, Any]]:
    try:
        return _read(repository, snapshot)
    except Exception as error:
        what = f"snapshot {snapshot} cannot be read ({_first_line(error)})"
        raise _damaged(path, what, known_bad=snapshot) from error


def _is_good(repository: icechunk.Repository, snapshot: str) -> bool:
    try:
        _read(repository, snapshot)
    except Exception:  # noqa: BLE001 see _checked
        return False
    return True


@panics_as_errors()
def _read(repository: icechunk.Repository, snapshot: str) -> tuple[Stored, Mapping[str, Any]]:
    """Return what ``snapshot`` holds, in today's schema, and the schema that it has on disk."""
    root = zarr.open_group(repository.readonly_session(snapshot_id=snapshot).store, mode="r")
    attributes: dict[str, Any] = dict(root.attrs)
    schema = attributes.get("schema", {})
    migration = MIGRATIONS.get((schema.get("name"), schema.get("version")))
    if migration is not None:
        tables, about = migration(root, attributes)
        return Stored(tables, attributes["sequence"], attributes["stamp_ns"], about), schema
    if schema != SCHEMA:
        raise StoreError(f"schema {schema}, this version reads {SCHEMA} and {sorted(MIGRATIONS)}")
    if attributes.pop("check", None) != _check(attributes):
        raise StoreError("its attributes were altered")
    digests = attributes["digests"]
    tables = {table: {name: _column(root, table, name, column) for name, column in columns.items()}
              for table, columns in TABLES.items()}  # fmt: skip
    for table, columns in tables.items():
        for name, values in columns.items():
            if len(values) and _digest(_hash_all(values)) != digests.get(f"{table}/{name}"):
                raise StoreError(f"column {table}/{name} was altered")
            if not len(values) and f"{table}/{name}" in digests:
                raise StoreError(f"column {table}/{name} is missing")
    return Stored(tables, attributes["sequence"], attributes["stamp_ns"], attributes["about"]), schema


def _column(root: zarr.Group, table: str, name: str, column: Column) -> np.ndarray:
    """Return a column (n, width); one that was never written has no rows."""
    key = f"{table}/{name}"
    if key not in root:
        return np.empty((0, column.width), object if column.dtype == "string" else column.dtype)
    values = np.asarray(_array(root, key)[:])
    if column.dtype == "string":  # Python's strings: see _write_texts
        return strings([str(text) for text in values[:, 0].tolist()])
    return values


def _array(root: zarr.Group, key: str) -> zarr.Array:
    array = root[key]
    if not isinstance(array, zarr.Array):
        raise StoreError(f"column {key!r}: a group, expected an array")
    return array


# -- writing ---------------------------------------------------------------------------------------------------------


def _write(root: zarr.Group, table: str, rows: Rows, hashes: dict[tuple[str, str], np.ndarray]) -> None:
    """Write ``rows`` of one table; those that a column holds already are left alone, chunk and all."""
    if not len(rows.index):
        return
    order = np.argsort(rows.index, kind="stable")
    index = rows.index[order]
    for name, column in TABLES[table].items():
        key = f"{table}/{name}"
        if key not in root:
            codecs = [ZstdCodec(level=1), Crc32cCodec()]  # the checksum finds flipped bits when a chunk is read
            chunk = column.chunk << max(0, (len(index) // (column.chunk * _MANY_CHUNKS)).bit_length())
            shape, chunks = (0, column.width), (chunk, column.width)
            root.create_array(key, shape=shape, chunks=chunks, dtype=column.dtype, compressors=codecs)
        array = _array(root, key)
        known = _grown(hashes.get((table, name), np.zeros(0, np.uint64)), int(index[-1]) + 1, column)
        if array.shape[0] < len(known):
            array.resize((len(known), column.width))
        values = rows.values[name][order]
        if column.dtype != "string":
            values = values.astype(array.dtype)
        fresh = row_hashes(index, values)
        news = known[index] != fresh
        if news.any():
            (_write_texts if column.dtype == "string" else _write_numbers)(array, index[news], values[news])
        known[index] = fresh
        hashes[table, name] = known


def _grown(hashes: np.ndarray, length: int, column: Column) -> np.ndarray:
    """Return a copy for at least ``length`` rows (the old ones count until the commit is done): new rows are blank."""
    blanks = length - len(hashes)
    if blanks <= 0:
        return hashes.copy()
    text = column.dtype == "string"
    blank = np.full((blanks, column.width), "", object) if text else np.zeros((blanks, column.width), column.dtype)
    return np.concatenate((hashes, row_hashes(np.arange(len(hashes), length), blank)))


def _write_numbers(array: zarr.Array, index: np.ndarray, values: np.ndarray) -> None:
    if len(index) == index[-1] - index[0] + 1:
        array[int(index[0]) : int(index[-1]) + 1] = values
    else:
        array.oindex[index] = values


def _write_texts(array: zarr.Array, index: np.ndarray, values: np.ndarray) -> None:
    """Write whole chunks of new strings.

    zarr would assign into the chunk that it read, and NumPy's StringDType spoils neighbours of a string of 255 bytes
    that takes another one's place (numpy issue 29261, not mended in 2.2).
    """
    size = array.chunks[0]
    chunks = np.unique(index // size)
    for run in np.split(chunks, np.flatnonzero(np.diff(chunks) > 1) + 1):
        begin, end = int(run[0]) * size, min((int(run[-1]) + 1) * size, array.shape[0])
        texts = np.array([str(text) for text in np.asarray(array[begin:end])[:, 0]], object)
        inside = (index >= begin) & (index < end)
        texts[index[inside] - begin] = values[inside, 0]
        array[begin:end] = texts.reshape(-1, 1)


def whole(tables: Tables, writes: Mapping[str, Rows] = MappingProxyType({})) -> dict[str, Rows]:
    """Return writes that put down all of ``tables`` with ``writes`` over them."""
    merged = {}
    for table, columns in TABLES.items():
        over = writes.get(table)
        length = len(next(iter(tables[table].values())))
        if over and len(over.index):
            length = max(length, int(over.index.max()) + 1)
        values = {}
        for name, column in columns.items():
            blank: Any = "" if column.dtype == "string" else 0
            rows = np.full((length, column.width), blank, object if column.dtype == "string" else column.dtype)
            rows[: len(tables[table][name])] = tables[table][name]
            if over and len(over.index):
                rows[over.index] = over.values[name]
            values[name] = rows
        merged[table] = Rows(np.arange(length), values)
    return merged


def _hash_all(values: np.ndarray) -> np.ndarray:
    parts = [row_hashes(np.arange(i, min(i + 65536, len(values))), values[i : i + 65536])
             for i in range(0, len(values), 65536)]  # fmt: skip
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def _digest(hashes: np.ndarray) -> str:
    return f"{int(hashes.sum(dtype=np.uint64)):016x}"


def _check(attributes: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(attributes, sort_keys=True).encode()).hexdigest()


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error).strip() else ''}"
