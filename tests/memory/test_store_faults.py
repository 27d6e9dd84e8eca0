"""What a disk, a folder or another process does to a store: an error in our words, and nothing committed is lost."""

from __future__ import annotations

import os
import resource
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
import zarr

from engram.core.errors import StoreError, StoreLockedError
from engram.core.lock import WriterLock
from engram.memory import DetectedObject, Pose, RobotMemory, SceneObservation
from engram.memory.storage.records import SCHEMA, LookedTable, Rows
from engram.memory.storage.snapshots import list_snapshots, read_snapshot
from engram.memory.storage.store import GraphStore, GraphStoreConfig, repair
from tests.memory.scenes import WordEncoder

SECOND = 10**9


def see(memory: RobotMemory, *seconds: int, label: str = "red cup") -> None:
    """Show ``memory`` one object at each of ``seconds``."""
    for second in seconds:
        place = np.array([0.4, 0.01 * second, 0.02])
        memory.update(SceneObservation(second * SECOND, objects=(DetectedObject(label, Pose(place)),)))


def opened(path: Path, **how) -> RobotMemory:
    return RobotMemory.open(path, encoder=WordEncoder(), **how)


def labels(path: Path) -> set[str]:
    with opened(path, read_only=True) as memory:
        return {node.label for node in memory.graph().nodes if node.layer == "object"}


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file grow beyond 100 bytes: the system refuses every larger write of this process, Rust's too."""
    before, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


# -- the disk ------------------------------------------------------------------------------------------------------


def test_a_commit_on_a_full_disk_is_a_store_error_and_succeeds_when_there_is_room_again(tmp_path):
    with opened(tmp_path) as memory:
        see(memory, 1)
        memory.commit()
        see(memory, 2, label="blue bowl")
        with full_disk(), pytest.raises(StoreError, match=f"{tmp_path}: not committed: .*os error 27"):
            memory.commit()
        assert labels(tmp_path) == {"red cup"}
        assert memory.commit() == memory.graph().sequence
        assert labels(tmp_path) == {"red cup", "blue bowl"}


@pytest.mark.parametrize("fails", ["_write_head", "_sync"])
def test_what_was_written_and_could_not_be_acknowledged_leaves_no_damage(tmp_path, monkeypatch, fails):
    """The snapshot is there, and only its acknowledgement failed; then a row gets the value it had before that."""
    store = GraphStore(tmp_path)
    commit = lambda value, sequence: store.commit({"looked": rows(value)}, sequence, sequence, {})  # noqa: E731
    commit(1, 1)
    with monkeypatch.context() as full, pytest.raises(StoreError, match="not committed"):
        full.setattr(store, fails, lambda *_: (_ for _ in ()).throw(OSError("No space left on device")))
        commit(2, 2)
    commit(1, 3)
    store.close()
    stored = read_snapshot(tmp_path)
    assert stored.sequence == 3 and stored.tables["looked"]["cell"].tolist() == [[7, 1]]


def rows(value: int) -> Rows:
    return Rows(np.array([0]), {"cell": np.array([[7, value]])})


def test_cells_forgotten_in_a_commit_that_failed_are_blanked_by_the_next():
    table = LookedTable()
    table.rows({7: 1, 8: 1}, ())
    table.forget_changes()
    for _ in range(2):  # the first commit fails
        rows = table.rows({}, {7})
        assert rows.index.tolist() == [0] and rows.values["cell"].tolist() == [[0, 0]]
    table.forget_changes()
    rows = table.rows({9: 5}, ())
    assert (rows.index.tolist(), rows.values["cell"].tolist()) == ([0], [[9, 5]])  # the row is used again


def test_a_full_disk_leaves_no_half_of_a_new_store_in_the_way(tmp_path):
    with full_disk(), pytest.raises(StoreError, match="cannot be made a store"):
        opened(tmp_path / "memory")
    opened(tmp_path / "memory").close()


def test_a_file_that_comes_after_the_attempt_failed_is_not_in_the_way_of_the_next(tmp_path, monkeypatch):
    """icechunk writes its files on several threads, and the first that fails does not wait for the others."""
    attempted = []

    def fail(storage, config):
        attempted.append(Path(str(storage).split("path: ")[1].strip()))
        raise OSError("No space left on device")

    with monkeypatch.context() as patch, pytest.raises(StoreError, match=r"cannot be made a store: .*No space left"):
        patch.setattr("icechunk.Repository.create", fail)
        opened(tmp_path / "memory")
    attempted[0].mkdir(parents=True)
    (attempted[0] / "late").write_bytes(b"from a thread that was still at it")
    opened(tmp_path / "memory").close()
    assert not list((tmp_path / "memory").rglob("late"))


def test_a_file_or_a_folder_that_cannot_be_written_is_a_store_error(tmp_path):
    file = tmp_path / "file"
    file.write_text("no folder")
    for how in ({}, {"read_only": True}):
        with pytest.raises(StoreError, match=str(file)):
            opened(file, **how)
    for path in ("/proc/engram", "/sys/kernel"):  # read-only for everybody, root too
        with pytest.raises(StoreError, match=f"{path}: cannot be written as a store"):
            opened(Path(path))
    for nothing in (file, tmp_path / "nowhere"):
        with pytest.raises(StoreError, match="no memory store there"):
            repair(nothing)
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_that_was_deleted_or_replaced_is_not_committed_to(tmp_path):
    memory = opened(tmp_path / "memory")
    see(memory, 1)
    memory.commit()
    (tmp_path / "memory").rename(tmp_path / "moved")
    see(memory, 2)
    with pytest.raises(StoreError, match="it was there when it was opened"):
        memory.commit()
    other = opened(tmp_path / "memory")
    with pytest.raises(StoreError, match="another folder has taken its place"):
        memory.commit()
    other.close()
    with pytest.raises(StoreError, match="another folder"):
        memory.close()
    memory.close()


def test_after_close_everything_that_works_on_the_stores_is_a_store_error(tmp_path):
    memory = opened(tmp_path)
    see(memory, 1)
    memory.close()
    for use in (
        lambda: see(memory, 2), memory.commit, memory.graph, lambda: memory.ask("where is the red cup"),
        lambda: memory.context("the red cup", 1), lambda: memory.consolidate(0.1),
        lambda: memory.begin_episode("reach", "reach", 1), lambda: memory.end_episode("reach", "succeeded", 1),
        lambda: memory.undo_merge(1, "me"),
    ):  # fmt: skip
        with pytest.raises(StoreError, match="closed"):
            use()
    store = GraphStore(tmp_path)
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.commit({}, 9, 9, {})


# -- the lock --------------------------------------------------------------------------------------------------------


def test_a_deleted_lock_file_lets_no_second_writer_in(tmp_path):
    store = GraphStore(tmp_path)
    (tmp_path / "writer.lock").unlink()
    with pytest.raises(StoreLockedError):
        GraphStore(tmp_path)
    store.close()
    GraphStore(tmp_path).close()


def test_two_files_of_one_folder_are_one_lock(tmp_path):
    lock = WriterLock(tmp_path, "a.lock")
    with pytest.raises(StoreLockedError):
        WriterLock(tmp_path, "b.lock")
    lock.release()
    lock.release()
    WriterLock(tmp_path, "b.lock").release()


# -- a newer version -------------------------------------------------------------------------------------------------


def newer(path: Path, **more) -> None:
    """Commit to the store at ``path`` as a later version of Engram would."""
    store = GraphStore(path)
    session = store._repository.writable_session("main")
    attributes = zarr.open_group(session.store, mode="a").attrs
    attributes.update({"schema": {**SCHEMA, "version": 99}, **more})
    session.commit("later", metadata={"sequence": 100})
    store.close()


def test_repair_does_not_go_back_behind_a_snapshot_of_a_newer_version(tmp_path):
    with opened(tmp_path) as memory:
        see(memory, 1)
    newer(tmp_path)
    for action in (lambda: repair(tmp_path), lambda: opened(tmp_path), lambda: labels(tmp_path)):
        with pytest.raises(StoreError, match=r"'version': 99.*update Engram") as raised:
            action()
        assert "memory repair" not in str(raised.value)
    assert list_snapshots(tmp_path)[0].sequence == 100
    assert not list(tmp_path.glob("graph.damaged-*"))


def test_repair_of_a_damaged_list_finds_the_newer_version_too(tmp_path):
    with opened(tmp_path) as memory:
        see(memory, 1)
    newer(tmp_path)
    shutil.copy(tmp_path / "graph" / "repo", tmp_path / "snapshots.backup")
    (tmp_path / "graph" / "repo").write_bytes(b"nonsense")
    with pytest.raises(StoreError, match="update Engram"):
        repair(tmp_path)


# -- a power cut -----------------------------------------------------------------------------------------------------


class Disk:
    """What a power cut leaves: of a file what it held when it was last fsynced, under the names that its folder had
    when that was last fsynced. Counts real calls of ``os.fsync``."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.calls = root, 0
        self.files: dict[int, bytes] = {}  # inode -> content
        self.names: dict[int, dict[str, int]] = {}  # inode of a folder -> its entries
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, handle: int) -> None:
        self._fsync(handle)
        self.calls += 1
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        inode = os.fstat(handle).st_ino
        if path.is_dir():
            self.names[inode] = {entry.name: entry.stat(follow_symlinks=False).st_ino for entry in os.scandir(path)}
        else:
            self.files[inode] = path.read_bytes()

    def after_a_power_cut(self, to: Path) -> Path:
        """Write what is left of the root into ``to``."""
        self._write(self.root.stat().st_ino, to)
        return to

    def _write(self, folder: int, to: Path) -> None:
        to.mkdir(parents=True)
        for name, inode in self.names.get(folder, {}).items():
            if inode in self.names:
                self._write(inode, to / name)
            elif inode in self.files:
                (to / name).write_bytes(self.files[inode])


def test_with_fsync_what_was_committed_is_all_there_after_a_power_cut(tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir()
    disk = Disk(tmp_path / "disk", monkeypatch)
    with opened(tmp_path / "disk" / "memory", fsync=True) as memory:
        for number, label in enumerate(("red cup", "blue bowl", "green box"), 1):
            see(memory, number, label=label)
            memory.commit()
            calls = disk.calls
            left = disk.after_a_power_cut(tmp_path / f"left {number}") / "memory"
            assert labels(left) == {"red cup", "blue bowl", "green box"} - set(("blue bowl", "green box")[number - 1 :])
            with opened(left) as again:  # and it can be written
                see(again, 9, label="another")
        memory.commit()
        assert disk.calls == calls  # nothing new, nothing to sync


def test_without_fsync_nothing_is_promised_over_a_power_cut(tmp_path, monkeypatch):
    """The proof above would notice: it rests on os.fsync alone."""
    (tmp_path / "disk").mkdir()
    disk = Disk(tmp_path / "disk", monkeypatch)
    with opened(tmp_path / "disk" / "memory") as memory:
        see(memory, 1)
        memory.commit()
        assert disk.calls == 0
    assert not (disk.after_a_power_cut(tmp_path / "left") / "memory").exists()


def test_old_snapshots_that_were_deleted_do_not_come_back_as_damage(tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir()
    disk = Disk(tmp_path / "disk", monkeypatch)
    config = GraphStoreConfig(fsync=True, keep_snapshots=2, expire_every=7)
    with closing(GraphStore(tmp_path / "disk" / "memory", config)) as store:
        memory = RobotMemory(store, encoder=WordEncoder())
        for second in range(1, 8):
            see(memory, second)
            memory.commit()
        store.wait()
        left = disk.after_a_power_cut(tmp_path / "left") / "memory"
        assert labels(left) == {"red cup"}
        assert len(list_snapshots(left)) == 2
        memory.close()
