"""The store of record: tables of columns in zarr 3, made atomic and versioned by icechunk; one writer at a time."""

from __future__ import annotations

import datetime
import hashlib
import json
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import zarr

from engram.core.clock_trust import ClockTrust
from engram.core.durable import sync
from engram.core.errors import StoreError
from engram.core.lock import WriterLock
from engram.memory.storage.disk_budget import DiskBudget
from engram.memory.storage.durable import FolderSync, replace_file, sync_with_parents
from engram.memory.storage.icechunk_errors import store_errors
from engram.memory.storage.records import SCHEMA, Rows
from engram.memory.storage.snapshots import (
    BACKUP,
    BRANCH,
    DAMAGED_FILES,
    HEAD,
    OtherSchemaError,
    Stored,
    attributes_hash,
    exchange,
    latest,
    new_repository,
    newest,
    newest_good,
    open_repository,
    replace_repository,
    snapshots_of,
)
from engram.memory.storage.tables import digest, hash_all, whole, write_rows

CLOCK_WAIT_S = 60.0
"""How far the clock may be behind the newest snapshot: it is waited for; if more, a new repository begins [s]."""


@dataclass(frozen=True)
class GraphStoreConfig:
    """What a store keeps."""

    keep_snapshots: int = 500
    """Older snapshots are expired and their chunks deleted."""
    expire_every: int = 250
    """Commits between two expiries."""
    fsync: bool = False
    """Whether a commit survives a power cut: every file is written to the disk before the commit is acknowledged."""
    budget_mb: float = 512.0
    """Files on disk [MB]; near it the older snapshots go, never the newest, which the budget in RAM bounds."""


class GraphStore:
    """A folder with one writer; a commit is atomic, and what it acknowledged survives kill -9.

    Unless ``fsync`` is set, a power cut may take the last seconds, never the consistency of what is left. Old
    snapshots are deleted on a thread of their own; the next commit waits for it. Snapshots are in the order of the
    machine's clock: where that was set back, the newest state begins a new repository, and the past ones stay behind.

    Raises:
        StoreError: the disk refuses it, or the folder is being written by another process, is damaged (naming the
            path, the snapshot and the newest one that is still good) or has another schema.
    """

    def __init__(self, path: Path | str, config: GraphStoreConfig | None = None) -> None:
        self.path = Path(path)
        self.config = config or GraphStoreConfig()
        self._changing = threading.Lock()
        self._lock = WriterLock(self.path)
        try:
            with store_errors(self.path, "cannot be opened"):
                self._repository = open_repository(self.path, create=True)
                self._loaded, self._found_schema = newest(self.path, self._repository)
                self._latest = latest(self._repository)
                self._sync = FolderSync(self.path / "graph") if self.config.fsync else None
                if self._sync is not None:  # what was committed without it, too
                    self._sync()
                    sync_with_parents(self.path)
        except BaseException:
            self._lock.release()
            raise
        self._trust = ClockTrust(lambda: round(_now().timestamp() * 1e9))
        self._trust.look()
        self._hashes: dict[tuple[str, str], np.ndarray] = {}
        if self._loaded and self._found_schema == SCHEMA:
            for table, columns in self._loaded.tables.items():
                self._hashes |= {(table, name): hash_all(v) for name, v in columns.items() if len(v)}
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

        Raises:
            StoreError: it is not committed. The disk is full or refuses to be written, the folder was replaced, the
                clock was set back by less than :data:`CLOCK_WAIT_S` or may not be set yet, or this store is closed.
        """
        with self._changing:
            return self._commit(writes, sequence, stamp_ns, about)

    def _commit(self, writes: Mapping[str, Rows], sequence: int, stamp_ns: int, about: Mapping[str, Any]) -> int:
        self._lock.check()
        if sequence == self._durable and not any(len(rows.index) for rows in writes.values()):
            return self._durable
        self.wait()
        behind_s = (self._latest - _now()).total_seconds()
        if 0 < behind_s <= CLOCK_WAIT_S:
            raise StoreError(f"{self.path}: not committed: the clock was set back, to {behind_s:.0f} s before the last")
        if (doubt := self._trust.doubt()) and behind_s > 0:
            raise StoreError(f"{self.path}: not committed: it is {behind_s:.0f} s before the last commit; {doubt}")
        with store_errors(self.path, "not committed"):
            if behind_s > 0:
                self._begin_anew(writes, sequence, stamp_ns, about)
            else:
                self._write(writes, sequence, stamp_ns, about)
        self._latest = _now()
        self._durable = sequence
        self._commits += 1
        if self._budget.share() < 1.0 or self._commits % self.config.expire_every == 0:
            self._upkeep = self._thread.submit(self._thin)
        return sequence

    def _write(self, writes: Mapping[str, Rows], sequence: int, stamp_ns: int, about: Mapping[str, Any]) -> None:
        """Commit. What is written counts as written also where it cannot be acknowledged: the next rows lie on it."""
        if self._found_schema != SCHEMA and self._loaded:  # of an older version: written anew, whole
            writes = whole(self._loaded.tables, writes)
        hashes = dict(self._hashes)
        snapshot = _write_snapshot(self._repository, writes, hashes, sequence, stamp_ns, about)
        self._written(snapshot, hashes, sequence)

    def _begin_anew(self, writes: Mapping[str, Rows], sequence: int, stamp_ns: int, about: Mapping[str, Any]) -> None:
        """Commit to a new repository, which takes the place of the one that refuses commits until its time comes."""
        stored = self._loaded or newest(self.path, self._repository)[0]
        hashes: dict[tuple[str, str], np.ndarray] = {}
        with new_repository(self.path) as (repository, made):
            whole_state = whole(stored.tables, writes) if stored else writes
            snapshot = _write_snapshot(repository, whole_state, hashes, sequence, stamp_ns, about)
            if self.config.fsync:
                FolderSync(made)()
            self._repository = replace_repository(self.path, made)
        if self.config.fsync:
            self._sync = FolderSync(self.path / "graph")
        self._written(snapshot, hashes, sequence)

    def _written(self, snapshot: str, hashes: dict[tuple[str, str], np.ndarray], sequence: int) -> None:
        self._hashes, self._loaded, self._found_schema = hashes, None, SCHEMA
        if self._sync is not None:
            self._sync()
        self._write_head(snapshot, sequence)

    @property
    def busy(self) -> bool:
        """Whether old snapshots are being deleted: a commit would wait for that."""
        return self._upkeep is not None and not self._upkeep.done()

    def wait(self) -> None:
        """Wait until old snapshots are deleted; raise what went wrong."""
        upkeep, self._upkeep = self._upkeep, None
        if upkeep is not None:
            with store_errors(self.path, "old snapshots cannot be deleted"):
                upkeep.result()

    def _thin(self) -> None:
        """Delete old snapshots until the files are within the budget: those that go first may be small."""
        self._expire(self.config.keep_snapshots)
        while (share := self._budget.share()) < 1.0:
            if not self._expire(max(1, int(share * len(snapshots_of(self._repository))))):
                break

    def _expire(self, keep: int) -> int:
        """Delete all but the newest ``keep`` snapshots and what only they held; return how many went."""
        for old in (self.path / "graph" / "overwritten").glob("repo.*"):  # icechunk keeps every list of snapshots
            old.unlink()
        known = snapshots_of(self._repository)
        if len(known) <= keep:
            return 0
        self._repository.expire_snapshots(older_than=known[keep - 1].written_at)
        if self._sync is not None:  # first: a list that names deleted snapshots must not come back
            self._sync()
        self._repository.garbage_collect(_now())
        self._write_head(known[0].id, known[0].sequence)
        return len(known) - len(snapshots_of(self._repository))

    def close(self) -> None:
        """Let the next writer in, after a commit that another thread is making; may be called twice.

        Uncommitted changes were never here.
        """
        with self._changing:
            self._thread.shutdown()
            self._lock.release()

    def _write_head(self, snapshot: str, sequence: int) -> None:
        write_head(self.path, snapshot, sequence, durable=self.config.fsync)


def write_head(path: Path, snapshot: str, sequence: int, *, durable: bool) -> None:
    """Write beside the repository what its list of snapshots is, and a copy of it."""
    listed = (path / "graph" / "repo").read_bytes()
    head = {"snapshot": snapshot, "sequence": sequence, "sha256": hashlib.sha256(listed).hexdigest()}
    for name, data in ((BACKUP, listed), (HEAD, json.dumps(head).encode())):
        replace_file(path / name, data, durable=durable)
    if durable:
        sync(path)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _write_snapshot(
    repository: icechunk.Repository,
    writes: Mapping[str, Rows],
    hashes: dict[tuple[str, str], np.ndarray],
    sequence: int,
    stamp_ns: int,
    about: Mapping[str, Any],
) -> str:
    """Write rows of tables and the attributes in one snapshot; return its id, and in ``hashes`` those of all rows."""
    session = repository.writable_session(BRANCH)
    root = zarr.open_group(session.store, mode="a")
    if not hashes:  # everything is written
        for name in list(root):
            del root[name]
    for table, rows in writes.items():
        write_rows(root, table, rows, hashes)
    attributes: dict[str, Any] = {"schema": SCHEMA, "sequence": sequence, "stamp_ns": stamp_ns, "about": dict(about)}
    attributes["digests"] = {f"{table}/{name}": digest(values) for (table, name), values in hashes.items()}
    root.attrs.put({**attributes, "check": attributes_hash(attributes)})
    # rows that are as they were, of a task that goes on say, are no mistake
    return session.commit(f"sequence {sequence}", metadata={"sequence": sequence}, allow_empty=True)


def repair(path: Path | str) -> int:
    """Go on from the newest good snapshot of a damaged store; return its sequence. Past snapshots stay behind.

    The damaged files are kept beside it as ``graph.damaged-<n>``.

    Raises:
        StoreError: no snapshot is good, or one that is not older than the newest good one was written by another
            version: it may be whole, and to go on from an older one would lose it.
    """
    path = Path(path)
    if not (path / "graph").is_dir():
        raise StoreError(f"{path}: no memory store there")
    lock = WriterLock(path)
    try:
        try:
            good = newest_good(path)
        except OtherSchemaError as error:
            raise StoreError(f"{path}: not repaired: a snapshot has {error}") from error
        if good is None:
            raise StoreError(f"{path}: no snapshot is good any more")
        number = next(n for n in range(1, 10_000) if not (path / f"{DAMAGED_FILES}{n}").exists())
        aside = path / f"{DAMAGED_FILES}{number}"
        with store_errors(path, "not repaired"), new_repository(path) as (repository, made):
            snapshot = _write_snapshot(repository, whole(good.tables), {}, good.sequence, good.stamp_ns, good.about)
            FolderSync(made)()  # all of it is there before anything of the old one moves
            exchange(path, made, aside)
            for name in (HEAD, BACKUP):  # last: without them nothing says what was acknowledged
                if (path / name).exists():
                    (path / name).rename(aside / name)
            write_head(path, snapshot, good.sequence, durable=True)
        return good.sequence
    finally:
        lock.release()
