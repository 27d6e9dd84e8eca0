"""Snapshots of a store: opened without a lock, checked, and searched for the newest good one.

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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import icechunk
import zarr

from engram.core.errors import DAMAGED, StoreError
from engram.memory.storage.icechunk_errors import first_line, panics_as_errors, store_errors
from engram.memory.storage.migrations import MIGRATIONS
from engram.memory.storage.records import SCHEMA, TABLES
from engram.memory.storage.tables import Tables, digest, hash_all, read_column

BRANCH = "main"
HEAD, BACKUP = "head.json", "snapshots.backup"
_MANIFEST_CHUNKS = 1000
AHEAD = "graph.ahead"  # the repository whose snapshots were later than the clock, until there is another one
DAMAGED_FILES = "graph.damaged-"  # and a number: what a repair has left behind
_UNFINISHED = "graph.unfinished-"  # a new repository that is being made
# icechunk warns that folders are unsafe for several writers; WriterLock sees to that
icechunk.set_logs_filter("error")


class OtherSchemaError(StoreError):
    """A snapshot was written by another version, most likely a newer one: it is whole, but cannot be read."""


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


def read_snapshot(path: Path | str, snapshot: str | None = None) -> Stored | None:
    """Read a snapshot (None = the newest) without a lock, also while another process writes.

    A snapshot that is named opens as long as it is good itself, whatever else in the store is damaged.
    """
    path = Path(path)
    with store_errors(path, "cannot be read"):
        if snapshot is None:
            return newest(path, open_repository(path, create=False))[0]
        return _named(path, snapshot)


def _named(path: Path, snapshot: str) -> Stored:
    if not (path / "graph").exists():
        raise StoreError(f"{path}: no memory store there")
    known: list[Snapshot] = []
    for repository in _sources(path):
        known = known or list(snapshots_of(repository))
        if snapshot in {one.id for one in snapshots_of(repository)}:
            return _checked(path, repository, snapshot)[0]
    raise StoreError(f"{path}: no snapshot {snapshot!r}; newest: {', '.join(one.id for one in known[:5])}")


def list_snapshots(path: Path | str) -> tuple[Snapshot, ...]:
    """Return the snapshots of the store at ``path``, newest first, without a lock."""
    return snapshots_of(open_repository(Path(path), create=False))


# -- opening ---------------------------------------------------------------------------------------------------------


def open_repository(path: Path, create: bool) -> icechunk.Repository:
    """Open the repository; its list of snapshots is the one that was written last, or the error says so."""
    folder = path / "graph"
    if create and not folder.exists():
        _put_back(path, folder)
    if not (folder / "repo").exists():
        if create and not (folder.exists() and any(folder.iterdir())):
            return _create(path, folder)
        raise StoreError(f"{path}: no memory store there" + (", but files of a damaged one" if folder.exists() else ""))
    head = _head(path)  # first: what a running writer acknowledges from now on need not be in the list
    try:
        with panics_as_errors():
            repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder)), _config())
        known = [one.id for one in snapshots_of(repository)]
    except Exception as error:
        raise _damaged(path, f"the store's list of snapshots is damaged: {first_line(error)}") from error
    if head and head["snapshot"] not in known and _list_hash(path) != head["sha256"]:  # it was acknowledged
        raise _damaged(path, f"the store's list of snapshots is damaged: {head['snapshot']} is missing")
    return repository


def _put_back(path: Path, folder: Path) -> None:
    """Where a process was killed between the two renames of :func:`exchange`, undo the first one."""
    damaged = sorted(path.glob(f"{DAMAGED_FILES}*"), key=lambda one: int(one.name.rpartition("-")[2]))[-1:]
    ahead = [path / AHEAD] if (path / AHEAD).exists() else []
    # a repair moves the two files beside it last, a change of repositories removes them first
    for aside in damaged + ahead if any((path / name).exists() for name in (HEAD, BACKUP)) else ahead + damaged:
        aside.rename(folder)  # a damaged one says so when it is opened
        return


def _create(path: Path, folder: Path) -> icechunk.Repository:
    with store_errors(path, "cannot be made a store"), new_repository(path) as (_, made):
        made.rename(folder)
        return icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder)), _config())


@contextmanager
def new_repository(path: Path) -> Iterator[tuple[icechunk.Repository, Path]]:
    """Make a new repository beside that of the store; whoever wants to keep it renames its folder.

    So nothing is in the way of the next attempt where it could not be made: icechunk writes its files at once, and some
    may come after the first that failed.
    """
    for left_over in path.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(left_over, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=path, ignore_cleanup_errors=True) as elsewhere:
        made = Path(elsewhere) / "graph"
        yield icechunk.Repository.create(icechunk.local_filesystem_storage(str(made)), _config()), made


def replace_repository(path: Path, made: Path) -> icechunk.Repository:
    """Put the repository ``made`` in the place of the store's, which is kept as ``graph.ahead``, and open it."""
    for name in (HEAD, BACKUP):  # they are about the other one
        (path / name).unlink(missing_ok=True)
    shutil.rmtree(path / AHEAD, ignore_errors=True)
    exchange(path, made, path / AHEAD)
    return open_repository(path, create=False)


def exchange(path: Path, made: Path, aside: Path) -> None:
    """Put the repository ``made`` in the place of the store's, which goes to ``aside``; where that fails, undo it."""
    (path / "graph").rename(aside)
    try:
        made.rename(path / "graph")
    except OSError:
        aside.rename(path / "graph")
        raise


def latest(repository: icechunk.Repository) -> datetime.datetime:
    """Return when the newest snapshot was written; of a new repository, when it was made."""
    return next(iter(repository.ancestry(branch=BRANCH))).written_at


def _config() -> icechunk.RepositoryConfig:
    """Split long manifests: a commit rewrites only those that it touches."""
    anywhere: Any = {icechunk.ManifestSplitDimCondition.Any(): _MANIFEST_CHUNKS}
    splitting = icechunk.ManifestSplittingConfig.from_dict({icechunk.ManifestSplitCondition.AnyArray(): anywhere})
    return icechunk.RepositoryConfig(manifest=icechunk.ManifestConfig(splitting=splitting))


def _list_hash(path: Path) -> str:
    return hashlib.sha256((path / "graph" / "repo").read_bytes()).hexdigest()


def _head(path: Path) -> Mapping[str, Any] | None:
    try:
        head = json.loads((path / HEAD).read_bytes())
        return head if {"snapshot", "sequence", "sha256"} <= head.keys() else None
    except DAMAGED:
        return None  # a store of an older version, or a damaged head: the snapshots speak for themselves


def _sources(path: Path) -> Iterator[icechunk.Repository]:
    """Yield the store as far as its list of snapshots can be read: as it is, then through the copy that the last
    commit left of that list."""
    with tempfile.TemporaryDirectory() as folder:
        for entry in (path / "graph").iterdir():
            if entry.is_dir():
                os.symlink(entry.resolve(), Path(folder) / entry.name)
        if (path / BACKUP).exists():
            shutil.copy(path / BACKUP, Path(folder) / "repo")
        for source in (path / "graph", Path(folder)):
            try:
                with panics_as_errors():
                    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(source)))
                snapshots_of(repository)
            except Exception:  # noqa: BLE001 damaged: see open_repository
                continue
            yield repository


def _damaged(path: Path, what: str, known_bad: str = "") -> StoreError:
    try:
        good = _newest_good_id(path, known_bad)
    except OtherSchemaError as error:
        return StoreError(f"{path}: {what}; another snapshot has a {error}")
    hint = f"the newest good one is {good.id} (sequence {good.sequence})" if good else "no other one is good"
    return StoreError(f"{path}: {what}; {hint}; `engram memory repair` goes on from there")


def _newest_good_id(path: Path, known_bad: str = "") -> Snapshot | None:
    found: list[Snapshot] = []
    for repository in _sources(path):
        listed = (one for one in snapshots_of(repository) if one.id != known_bad)
        good = next((one for one in listed if _is_good(repository, one.id)), None)
        found += [good] if good else []
    return max(found, key=lambda one: one.sequence, default=None)


def newest_good(path: Path) -> Stored | None:
    good = _newest_good_id(path)
    return read_snapshot(path, good.id) if good else None


@panics_as_errors()
def snapshots_of(repository: icechunk.Repository) -> tuple[Snapshot, ...]:
    return tuple(
        Snapshot(info.id, int(info.metadata["sequence"]), info.written_at)
        for info in repository.ancestry(branch=BRANCH)
        if "sequence" in info.metadata  # the first, empty one has none
    )


# -- reading ---------------------------------------------------------------------------------------------------------


def newest(path: Path, repository: icechunk.Repository) -> tuple[Stored | None, Mapping[str, Any]]:
    head = _head(path)  # first, as above
    known = snapshots_of(repository)
    if not known:
        return None, SCHEMA
    stored, schema = _checked(path, repository, known[0].id)
    if head and stored.sequence < head["sequence"] and _list_hash(path) != head["sha256"]:
        raise _damaged(path, f"sequence {head['sequence']} was acknowledged, the newest there is {stored.sequence}")
    return stored, schema


def _checked(path: Path, repository: icechunk.Repository, snapshot: str) -> tuple[Stored, Mapping[str, Any]]:
    try:
        return _read(repository, snapshot)
    except OtherSchemaError as error:
        raise OtherSchemaError(f"{path}: snapshot {snapshot}: {error}") from error
    except Exception as error:
        what = f"snapshot {snapshot} cannot be read ({first_line(error)})"
        raise _damaged(path, what, known_bad=snapshot) from error


def _is_good(repository: icechunk.Repository, snapshot: str) -> bool:
    try:
        _read(repository, snapshot)
    except OtherSchemaError:
        raise  # to go on from an older one would lose it
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
        told = f"schema {schema}, this version reads {SCHEMA} and {sorted(MIGRATIONS)}"
        if isinstance(schema.get("name"), str) and isinstance(schema.get("version"), int):
            raise OtherSchemaError(f"{told}; update Engram")
        raise StoreError(told)
    if attributes.pop("check", None) != attributes_hash(attributes):
        raise StoreError("its attributes were altered")
    digests = attributes["digests"]
    tables = {table: {name: read_column(root, table, name, column) for name, column in columns.items()}
              for table, columns in TABLES.items()}  # fmt: skip
    for table, columns in tables.items():
        for name, values in columns.items():
            if len(values) and digest(hash_all(values)) != digests.get(f"{table}/{name}"):
                raise StoreError(f"column {table}/{name} was altered")
            if not len(values) and f"{table}/{name}" in digests:
                raise StoreError(f"column {table}/{name} is missing")
    return Stored(tables, attributes["sequence"], attributes["stamp_ns"], attributes["about"]), schema


def attributes_hash(attributes: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(attributes, sort_keys=True).encode()).hexdigest()
