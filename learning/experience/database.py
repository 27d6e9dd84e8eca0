"""A SQLite file with one writer and many readers; what is committed is durable. And files that are replaced whole."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from engram.core.durable import sync
from engram.core.errors import StoreError
from engram.core.lock import WriterLock

_UNREADABLE = (
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_NOTADB,
)
"""What SQLite says of a file that is not what was written. Else it is the disk: full, read-only, gone."""


_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)
"""What the system says of a file whose name, read from a damaged one, is wrong. Else it is the disk, or it is not
allowed."""


PATIENCE_MS = 5000
"""How long the writer waits for whoever locks the file [ms]."""


class UnreadableStoreError(StoreError):
    """A file is there, but is damaged or of another version: without it a new one could be begun."""


def unreadable(error: BaseException) -> type[StoreError]:
    """Return the kind of a failure to read a file: UnreadableStoreError unless the disk or a permission is to blame."""
    return StoreError if isinstance(error, OSError) and error.errno not in _NOT_THERE else UnreadableStoreError


class Database:
    """The one writer of ``path``; anybody may :func:`read`.

    Write-ahead log with ``synchronous=FULL``: what :meth:`commit` returned from survives kill -9 and a power cut.

    A file of an older ``version`` is brought to this one by ``migrations``, version by version, in one transaction.

    Raises:
        StoreLockedError: another process writes it (naming its id).
        UnreadableStoreError: the file is damaged or of a schema version that no migration leads from.
        StoreError: the disk refuses it.
    """

    def __init__(self, path: Path, schema: str, version: int, migrations: Mapping[int, str] | None = None) -> None:
        self.path = path
        self._lock = WriterLock(path.parent, f"{path.name}.lock")
        self._connection: sqlite3.Connection | None = None
        try:
            with _as_store_error(path):
                self._connection = sqlite3.connect(
                    path, PATIENCE_MS / 1000, isolation_level=None, check_same_thread=False
                )
                self._file = os.stat(path)
            self.execute("PRAGMA journal_mode=WAL")
            self.execute("PRAGMA synchronous=FULL")
            self._bring_to(version, schema, migrations or {})
            with _as_store_error(path):
                sync(path.parent)
        except StoreError:
            self.close()
            raise

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run one statement; raises StoreError naming the file."""
        if self._connection is None:
            raise StoreError(f"{self.path}: already closed")
        with _as_store_error(self.path):
            return self._connection.execute(statement, values)

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple]:
        """Return the rows that ``statement`` selects, those of the open transaction included.

        Raises:
            StoreError: they cannot be read; names the file.
        """
        cursor = self.execute(statement, values)
        with _as_store_error(self.path):
            return cursor.fetchall()

    def begin(self) -> None:
        """Begin a transaction unless one is open."""
        if self._connection is not None and not self._connection.in_transaction:
            self.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Make the open transaction durable; on failure nothing of it is kept.

        It is moved out of the write-ahead log at once: SQLite cuts off a log at its first damaged page without a word,
        and with it what was committed last.

        Raises:
            StoreError: the disk refuses it, or the file was deleted or replaced: what is written there is lost.
        """
        if self._connection is None or not self._connection.in_transaction:
            return
        try:
            self._check_file()
            self.execute("COMMIT")
        except StoreError:
            self.rollback()
            raise
        with suppress(StoreError):  # it is durable in the log, too; beside a reader the next commit moves both
            self.execute("PRAGMA busy_timeout=0")
            self.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self.execute(f"PRAGMA busy_timeout={PATIENCE_MS}")

    def free_bytes(self) -> int:
        """Return how many bytes of the file hold nothing: it grows when they are used up, and never shrinks."""
        ((pages,),), ((size,),) = self.rows("PRAGMA freelist_count"), self.rows("PRAGMA page_size")
        return int(pages * size)

    def rollback(self) -> None:
        """Forget the open transaction."""
        if self._connection is not None and self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def read(self, statement: str, values: Sequence[Any] = ()) -> list[tuple]:
        """Return the committed rows that ``statement`` selects, in any thread; raises StoreError naming the file."""
        return read(self.path, statement, values)

    def close(self) -> None:
        """Let go of the file, dropping what is not committed; may be called twice."""
        if self._connection is not None:
            self.rollback()
            self._connection.close()
            self._connection = None
        self._lock.release()

    def _check_file(self) -> None:
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise StoreError(f"{self.path}: {error.strerror}; it was there when it was opened") from error
        if not os.path.samestat(found, self._file):
            raise StoreError(f"{self.path}: another file has taken its place since it was opened")

    def _bring_to(self, version: int, schema: str, migrations: Mapping[int, str]) -> None:
        (found,) = self.execute("PRAGMA user_version").fetchone()
        steps = {0: schema} if found == 0 else {n: migrations.get(n) for n in range(found, version)}
        if found > version or None in steps.values():
            raise UnreadableStoreError(f"{self.path}: schema version {found}, this version reads {version}")
        if not steps:
            return
        self.begin()
        for script in steps.values():
            for statement in (script or "").split(";"):
                self.execute(statement)
        self.execute(f"PRAGMA user_version={version}")
        self.commit()


def read(path: Path, statement: str, values: Sequence[Any] = ()) -> list[tuple]:
    """Return the committed rows of the database ``path`` that ``statement`` selects, beside its writer.

    A folder that may not be written has no writer: there a file that was closed is read without its log.

    Raises:
        StoreError: it cannot be read; names the file.
    """
    fixed = not os.access(path.parent, os.W_OK)
    log = path.with_name(f"{path.name}-wal").exists()
    where = f"file:{quote(str(path))}?mode=ro" + ("&immutable=1" if fixed and not log else "")
    with _as_store_error(path):
        try:
            with closing(sqlite3.connect(where, uri=True, isolation_level=None, check_same_thread=False)) as reader:
                return reader.execute(statement, values).fetchall()
        except sqlite3.OperationalError as error:
            if fixed and log and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CANTOPEN:
                raise StoreError(
                    f"{path}: its writer was not closed; then {path.parent} has to be writable, also to be read. "
                    "Make it so, or read a copy of the folder"
                ) from error
            raise


@contextmanager
def _as_store_error(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)  # none: the module cannot decode what was read
        kind = UnreadableStoreError if code & 0xFF in _UNREADABLE else StoreError
        raise kind(f"{path}: {error}") from error
    except (OSError, OverflowError) as error:  # an overflow: a number of more than 63 bits
        raise StoreError(f"{path}: {error}") from error


def set_aside(folder: Path, names: Iterable[str]) -> Path:
    """Move what exists of ``names`` in ``folder`` into a new folder ``set-aside-<UTC time>`` there and return that.

    Raises:
        OSError: the disk refuses it; nothing has moved.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    aside = folder / f"set-aside-{stamp}"
    aside.mkdir()
    try:
        for name in names:
            if (folder / name).exists():
                (folder / name).rename(aside / name)
        sync(aside)
        sync(folder)
    except OSError:
        put_back(aside)
        raise
    return aside


def put_back(aside: Path) -> None:
    """Move what :func:`set_aside` moved to ``aside`` back, in place of what has been begun there since.

    Raises:
        OSError: something stays where it is.
    """
    for part in list(aside.iterdir()):
        place = aside.parent / part.name
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
        part.rename(place)
    aside.rmdir()
    sync(aside.parent)
