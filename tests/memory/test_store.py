"""What was acknowledged survives, damage is named, one writes at a time."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import random
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import zarr

from engram.core.errors import StoreError
from engram.memory.graph.fusion import FusionConfig, spawn
from engram.memory.storage import store as store_module
from engram.memory.storage.columns import NodeColumns
from engram.memory.storage.disk_budget import bytes_in
from engram.memory.storage.records import SCHEMA, Rows, node_rows, nodes_from, restore_nodes, strings
from engram.memory.storage.snapshots import list_snapshots, read_snapshot
from engram.memory.storage.store import GraphStore, GraphStoreConfig, repair
from engram.memory.storage.tables import write_rows
from tests.memory.scenes import seen
from tests.policies.forks import FORKS, preload

KILLS = int(os.environ.get("ENGRAM_KILLS", "30"))
DAMAGES = int(os.environ.get("ENGRAM_DAMAGES", "40"))
SEED = int(os.environ.get("ENGRAM_SEED", "20"))


def node(number: int, x: float = 0.0, label: str = "red cube"):
    """Return node ``object_<number>`` at x m."""
    return spawn(f"object_{number:04d}", seen(label, (x, 0, 0)), number, FusionConfig())


class Writer:
    """A store and the columns that it keeps."""

    def __init__(self, path, config: GraphStoreConfig | None = None) -> None:
        self.store, self.columns = GraphStore(path, config), NodeColumns()
        stored = self.store.load()
        if stored:
            restore_nodes(self.columns, stored.tables)

    def commit(self, sequence: int, *nodes, removed=()):
        """Commit with made-up stamps."""
        for node_id in set(removed) & set(self.columns.row_of):
            self.columns.remove(node_id)
        for one in nodes:
            self.columns.put(one)
        durable = self.store.commit(node_rows(self.columns), sequence, sequence * 10, {"issued": {"object": 99}})
        self.columns.forget_changes()
        return durable

    def close(self) -> None:
        self.store.close()


def nodes(path, snapshot=None):
    """Return the nodes of a snapshot."""
    return [one for _, one, _ in nodes_from(read_snapshot(path, snapshot).tables)]


def test_a_new_store_is_empty_and_gives_back_what_was_committed(tmp_path):
    store = Writer(tmp_path)
    assert store.store.load() is None
    assert store.commit(7, node(1, 0.1), node(2, 0.2)) == 7
    store.close()
    stored = GraphStore(tmp_path).load()
    assert (stored.sequence, stored.stamp_ns, stored.about["issued"]) == (7, 70, {"object": 99})
    kept = nodes(tmp_path)
    assert [(n.id, n.pose.position[0]) for n in kept] == [("object_0001", 0.1), ("object_0002", 0.2)]
    np.testing.assert_array_equal(kept[0].embedding, node(1).embedding)


def test_update_in_place_and_rows_used_again(tmp_path):
    store = Writer(tmp_path)
    store.commit(1, *(node(i) for i in range(1, 6)))
    store.commit(2, node(3, 0.3), removed={"object_0002", "object_0004"})
    store.commit(3, node(6), node(7), node(8))
    store.close()
    stored = nodes(tmp_path)
    assert [n.id[-1] for n in stored] == list("135678")
    assert stored[1].pose.position[0] == 0.3
    session = store.store._repository.readonly_session("main")
    assert zarr.open_group(session.store, mode="r")["nodes/time"].shape == (6, 4)  # 5 + 3 - 2: no growth by churn


def test_a_removed_id_that_never_was_stored_is_no_error(tmp_path):
    assert Writer(tmp_path).commit(1, node(1), removed={"object_0009"}) == 1


def test_labels_in_any_language_and_length_are_kept(tmp_path):
    store = Writer(tmp_path)
    store.commit(1, replace(node(1), label="rote Tasse " + "ß杯🥤" * 50))
    assert nodes(tmp_path)[0].label == "rote Tasse " + "ß杯🥤" * 50


def test_nothing_changed_writes_no_snapshot(tmp_path):
    store = Writer(tmp_path)
    store.commit(1, node(1))
    assert store.commit(1) == 1
    assert len(list_snapshots(tmp_path)) == 1


def test_a_past_snapshot_opens_while_the_writer_goes_on(tmp_path):
    store = Writer(tmp_path)
    for sequence in range(1, 4):
        store.commit(sequence, node(1, sequence / 10))
    snapshots = list_snapshots(tmp_path)
    assert [s.sequence for s in snapshots] == [3, 2, 1]
    assert nodes(tmp_path, snapshots[2].id)[0].pose.position[0] == 0.1
    assert nodes(tmp_path)[0].pose.position[0] == pytest.approx(0.3)


def test_old_snapshots_expire_and_give_their_space_back(tmp_path):
    store = Writer(tmp_path, GraphStoreConfig(keep_snapshots=5, expire_every=20))

    def size() -> int:
        return sum(f.stat().st_size for f in (tmp_path / "graph" / "chunks").iterdir())

    for sequence in range(1, 20):
        store.commit(sequence, *(node(i, sequence / 100, f"cube {sequence}") for i in range(1, 9)))
    before = size()
    store.commit(20, *(node(i, 0.2) for i in range(1, 9)))
    store.store.wait()
    assert [s.sequence for s in list_snapshots(tmp_path)] == [20, 19, 18, 17, 16]
    assert size() < before / 3
    assert len(nodes(tmp_path)) == 8


def test_a_second_writer_is_refused_and_told_who_writes(tmp_path):
    store = Writer(tmp_path)
    with pytest.raises(StoreError, match=f"written by process {os.getpid()}"):
        GraphStore(tmp_path)
    store.close()
    GraphStore(tmp_path).close()


@pytest.mark.parametrize("fsync", [False, True])
def test_where_the_clock_was_set_back_far_commits_go_to_a_new_repository_with_everything(tmp_path, monkeypatch, fsync):
    store = Writer(tmp_path, GraphStoreConfig(fsync=fsync))
    store.commit(1, node(1), node(2))
    back = store_module._now() - datetime.timedelta(days=300)
    monkeypatch.setattr(store_module, "_now", lambda: back)
    assert store.commit(2, node(2, 0.7), node(3)) == 2
    assert store.commit(3, node(4), removed=["object_0001"]) == 3
    store.close()
    kept = {n.id: n.pose.position[0] for n in nodes(tmp_path)}
    assert kept == {"object_0002": 0.7, "object_0003": 0.0, "object_0004": 0.0}
    assert [one.sequence for one in list_snapshots(tmp_path)] == [3, 2]
    (tmp_path / "graph.ahead").rename(tmp_path / "graph.other")
    shutil.rmtree(tmp_path / "graph")
    (tmp_path / "graph.other").rename(tmp_path / "graph")
    for name in ("head.json", "snapshots.backup"):
        (tmp_path / name).unlink()
    assert len(nodes(tmp_path)) == 2  # what was there before is kept whole


def test_a_machine_whose_clock_may_not_be_set_yet_puts_no_repository_aside(tmp_path, monkeypatch):
    store = Writer(tmp_path)
    store.commit(1, node(1))
    store.close()
    monkeypatch.setattr(store_module, "_now", lambda: datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC))
    store = Writer(tmp_path)
    store.store._trust._is_synchronized = lambda: False
    with pytest.raises(StoreError, match=r"not committed: it is \d+ s before the last commit; .*may not be set yet"):
        store.commit(2, node(2))
    assert not (tmp_path / "graph.ahead").exists()
    store.store._trust._is_synchronized = lambda: True
    assert store.commit(2, node(2)) == 2
    assert (tmp_path / "graph.ahead").exists()


def test_where_the_clock_was_set_back_a_little_it_is_waited_for(tmp_path, monkeypatch):
    store = Writer(tmp_path)
    store.commit(1, node(1))
    clock = store_module._now
    for behind_s in (10.0, 0.0):
        monkeypatch.setattr(store_module, "_now", lambda b=behind_s: clock() - datetime.timedelta(seconds=b))
        with pytest.raises(StoreError, match="the clock was set back") if behind_s else contextlib.nullcontext():
            store.commit(2, node(1, 0.5))
    assert [one.sequence for one in list_snapshots(tmp_path)] == [2, 1]


def test_where_the_disk_refuses_the_new_repository_the_old_one_stays_and_the_next_commit_makes_it(
    tmp_path, monkeypatch
):
    store, names = Writer(tmp_path), []
    store.commit(1, node(1))
    monkeypatch.setattr(store_module, "_now", lambda: datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC))

    def refused(path, target, rename=Path.rename):
        names.append(Path(target).name)
        if names == ["graph.ahead", "graph"]:
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(StoreError, match="not committed: OSError"):
        store.commit(2, node(2))
    assert names == ["graph.ahead", "graph", "graph"] and len(nodes(tmp_path)) == 1
    assert store.commit(2, node(1), node(2)) == 2 and len(nodes(tmp_path)) == 2


@pytest.mark.parametrize("step", ["unlink", "rmtree", "rename", "rename again"])
def test_killed_while_a_new_repository_takes_its_place_everything_is_there(tmp_path, monkeypatch, step):
    store = Writer(tmp_path)
    store.commit(1, node(1))
    renames = itertools.count()

    def killed(*_args, **_kwargs):
        raise KeyboardInterrupt

    def second(path, target, rename=Path.rename):
        return killed() if next(renames) else rename(path, target)

    name, broken = {"rename again": ("rename", second)}.get(step, (step, killed))
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "_now", lambda: datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC))
        patch.setattr(shutil if name == "rmtree" else Path, name, broken)
        with pytest.raises(KeyboardInterrupt):
            store.commit(2, node(2))
    store.close()
    again = Writer(tmp_path)
    assert again.store.load().sequence == 1
    again.commit(2, node(2))
    again.close()
    assert len(nodes(tmp_path)) == 2


def test_who_closes_waits_for_the_commit_of_another_thread(tmp_path, monkeypatch):
    store, began, goes_on = Writer(tmp_path), threading.Event(), threading.Event()
    write = store_module.write_rows

    def slow(*rows):
        began.set()
        assert goes_on.wait(20)
        write(*rows)

    monkeypatch.setattr(store_module, "write_rows", slow)
    with ThreadPoolExecutor(2) as threads:
        committed = threads.submit(store.commit, 1, node(1))
        assert began.wait(20)
        closed = threads.submit(store.close)
        with pytest.raises(StoreError, match="already being written"):
            GraphStore(tmp_path)
        assert not closed.done()
        goes_on.set()
        assert committed.result(20) == 1 and closed.result(20) is None
    GraphStore(tmp_path).close()


def test_another_schema_is_refused_with_both_versions(tmp_path):
    store = Writer(tmp_path)
    store.commit(1, node(1))
    session = store.store._repository.writable_session("main")
    zarr.open_group(session.store, mode="a").attrs["schema"] = {**SCHEMA, "version": 99}
    session.commit("later", metadata={"sequence": 2})
    store.close()
    with pytest.raises(StoreError, match=r"'version': 99.*this version reads.*'version': 2.*update Engram"):
        GraphStore(tmp_path)


def test_a_missing_store_is_named(tmp_path):
    with pytest.raises(StoreError, match=f"{tmp_path / 'none'}: no memory store"):
        read_snapshot(tmp_path / "none")


def test_an_unknown_snapshot_is_refused_with_those_there_are(tmp_path):
    store = Writer(tmp_path)
    store.commit(1, node(1))
    with pytest.raises(StoreError, match=f"no snapshot 'X'; newest: {list_snapshots(tmp_path)[0].id}"):
        read_snapshot(tmp_path, "X")


@pytest.mark.parametrize("damage", ["flip", "cut", "delete"])
def test_a_damaged_chunk_is_found_and_the_last_good_snapshot_named_and_readable(tmp_path, damage):
    store = Writer(tmp_path)
    store.commit(1, *(node(i) for i in range(1, 9)))
    chunks = tmp_path / "graph" / "chunks"
    old = set(chunks.iterdir())
    store.commit(2, *(node(i, 0.5, "blue cube") for i in range(1, 9)))
    good, bad = list_snapshots(tmp_path)[1], list_snapshots(tmp_path)[0]
    store.close()
    (victim, *_) = sorted(set(chunks.iterdir()) - old)
    data = bytearray(victim.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    victim.write_bytes(data if damage == "flip" else data[: len(data) // 2])
    if damage == "delete":
        victim.unlink()
    with pytest.raises(StoreError, match=f"{tmp_path}: snapshot {bad.id} cannot be read.*good one is {good.id}"):
        GraphStore(tmp_path)
    assert len(nodes(tmp_path, good.id)) == 8


def test_a_damaged_list_of_snapshots_is_named_and_its_copy_opens_the_last_good_one(tmp_path):
    store = Writer(tmp_path)
    store.commit(1, node(1, 0.3))
    good = list_snapshots(tmp_path)[0]
    store.close()
    (tmp_path / "graph" / "repo").write_bytes(b"nonsense")
    with pytest.raises(StoreError, match=f"{tmp_path}: the store's list.*good one is {good.id}.*memory repair"):
        GraphStore(tmp_path)
    assert nodes(tmp_path, good.id)[0].pose.position[0] == 0.3


def test_a_list_of_snapshots_that_lost_what_was_acknowledged_is_damage(tmp_path):
    """An older list is whole in itself; only head.json knows that it is not the last."""
    store = Writer(tmp_path)
    store.commit(1, node(1))
    older = (tmp_path / "graph" / "repo").read_bytes()
    store.commit(2, node(1, 0.5))
    store.close()
    (tmp_path / "graph" / "repo").write_bytes(older)
    with pytest.raises(StoreError, match=r"is missing; the newest good one is .* \(sequence 2\)"):
        GraphStore(tmp_path)


def damaged(path):
    """Leave a store whose list of snapshots can be read in the backup alone."""
    store = Writer(path)
    store.commit(1, node(1, 0.1))
    store.commit(2, node(1, 0.2))
    store.close()
    (path / "graph" / "repo").write_bytes(b"nonsense")


def test_repair_goes_on_from_the_last_good_snapshot_and_keeps_the_damaged_files(tmp_path):
    damaged(tmp_path)
    assert repair(tmp_path) == 2
    again = Writer(tmp_path)
    assert again.commit(3, node(2)) == 3
    assert [n.id for n in nodes(tmp_path)] == ["object_0001", "object_0002"]
    assert (tmp_path / "graph.damaged-1" / "repo").read_bytes() == b"nonsense"


def test_a_repair_that_fails_leaves_everything_for_the_next(tmp_path, monkeypatch):
    damaged(tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    for broken in ("engram.memory.storage.store._write_snapshot", "engram.memory.storage.store.exchange"):
        with monkeypatch.context() as patch, pytest.raises(StoreError, match=r"not repaired: .*No space left"):
            patch.setattr(broken, Mock(side_effect=OSError(28, "No space left on device")))
            repair(tmp_path)
        assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    assert repair(tmp_path) == 2


def test_a_repair_that_was_killed_between_its_renames_leaves_no_empty_store(tmp_path):
    damaged(tmp_path)
    (tmp_path / "graph").rename(tmp_path / "graph.damaged-1")
    with pytest.raises(StoreError, match=r"list of snapshots is damaged.*memory repair"):
        GraphStore(tmp_path)
    assert repair(tmp_path) == 2
    assert [n.id for n in nodes(tmp_path)] == ["object_0001"]


def test_flipped_bits_and_cut_files_never_give_a_wrong_answer(tmp_path):
    """The newest state or an error that names a good snapshot: in any file, at any place."""
    store = Writer(tmp_path / "whole")
    for sequence in (1, 2, 3):
        cubes = (replace(node(i, sequence / 10, f"cube {sequence}"), last_seen_ns=sequence) for i in range(1, 20))
        store.commit(sequence, *cubes, removed={f"object_{sequence:04d}"})
    truth = [(n.id, n.pose.position[0], n.label) for n in nodes(tmp_path / "whole")]
    past = {s.id: s.sequence for s in list_snapshots(tmp_path / "whole")}
    store.close()
    files = sorted(f.relative_to(tmp_path / "whole") for f in (tmp_path / "whole").rglob("*") if f.is_file())
    files = [f for f in files if "lock" not in f.name and (tmp_path / "whole" / f).stat().st_size]
    draw = random.Random(SEED)
    opened = named = 0
    for case in range(DAMAGES):
        copy = tmp_path / str(case)
        shutil.copytree(tmp_path / "whole", copy)
        victim = copy / draw.choice(files)
        data = bytearray(victim.read_bytes())
        at = draw.randrange(len(data))
        if case % 2:
            data[at] ^= 1 << draw.randrange(8)
        victim.write_bytes(data if case % 2 else data[:at])
        try:
            assert [(n.id, n.pose.position[0], n.label) for n in nodes(copy)] == truth
            opened += 1
        except StoreError as error:
            (good,) = [one for one in past if f"good one is {one}" in str(error)] or [None]
            assert good is not None, error
            assert {n.pose.position[0] for n in nodes(copy, good)} <= {0.1, 0.2, 0.3}
            assert past[good] == read_snapshot(copy, good).sequence
            named += 1
        shutil.rmtree(copy)
    assert opened + named == DAMAGES and min(opened, named) > 0


def test_a_panic_of_icechunk_is_damage_like_any_other(tmp_path, monkeypatch):
    """As a flipped bit in its list of snapshots caused one, which is no Exception and would end the node."""
    Writer(tmp_path).close()
    panic = type("PanicException", (BaseException,), {})

    def panicking(*_, **__):
        raise panic("assertion failed: idx < self.len()")

    monkeypatch.setattr("icechunk.Repository.ancestry", panicking)
    with pytest.raises(StoreError, match=r"list of snapshots is damaged: ValueError: icechunk panicked: assertion"):
        list_snapshots(tmp_path)


def write_for_ever(path: str, acks: Connection) -> None:
    """Go on with the store at ``path``: each commit adds a node, moves an old one and, now and then, removes one."""
    store = Writer(path)
    loaded = store.store.load()
    for sequence in itertools.count(loaded.sequence + 1 if loaded else 1):
        removed = {f"object_{sequence - 3:04d}"} if sequence % 7 == 0 else set()
        acks.send(store.commit(sequence, node(sequence, 0.1), node(max(1, sequence // 2), sequence), removed=removed))


def killed_writer(path: Path, alive_s: float) -> list[int]:
    """Kill a writer -9 so long after its first commit, and return the commits that it acknowledged.

    It is forked and begins at once, where a new interpreter imports for 1.5 s.
    """
    preload(["pytest", "scipy.spatial.transform", "zarr"])  # not icechunk: it begins threads
    heard, said = FORKS.Pipe(duplex=False)
    writer = FORKS.Process(target=write_for_ever, args=(str(path), said), daemon=True)
    writer.start()
    said.close()
    acks = [heard.recv()]  # it runs
    time.sleep(alive_s)
    writer.kill()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL
    with contextlib.suppress(EOFError):
        while True:
            acks.append(heard.recv())
    heard.close()
    return acks


def expected(sequence: int) -> dict[str, float]:
    """Return the x of every node after the commits 1..sequence of ``write_for_ever``."""
    places: dict[str, float] = {}
    for step in range(1, sequence + 1):
        if step % 7 == 0:
            places.pop(f"object_{step - 3:04d}", None)
        places[f"object_{step:04d}"] = 0.1
        places[f"object_{max(1, step // 2):04d}"] = float(step)
    return places


@pytest.mark.timeout(1800)  # `engram prove memory` asks for more kills
def test_kill_9_at_any_instant_loses_nothing_that_was_acknowledged(tmp_path):
    draw = random.Random(SEED)
    acknowledged = 0
    for _ in range(KILLS):
        acks = killed_writer(tmp_path, draw.uniform(0.0, 0.25))
        assert acks == list(range(acknowledged + 1, acknowledged + 1 + len(acks)))
        stored = read_snapshot(tmp_path)
        # one commit may be done and not yet acknowledged
        assert stored.sequence in (acks[-1], acks[-1] + 1)
        acknowledged = stored.sequence
        assert {n.id: n.pose.position[0] for n in nodes(tmp_path)} == expected(stored.sequence)


def test_texts_of_every_length_keep_to_themselves():
    """NumPy's strings of 255 bytes spoil their neighbours when one is assigned over another (numpy issue 29261)."""
    draw, root, texts, hashes = random.Random(6), zarr.group(), [""] * 150, {}
    for _ in range(40):
        index = np.array(draw.sample(range(150), 30))
        for row in index.tolist():
            texts[row] = draw.choice("abc") * draw.choice([0, 100, 254, 255, 255, 256, 257, 300])
        write_rows(root, "records", Rows(index, {"text": strings([texts[row] for row in index.tolist()])}), hashes)
    assert [str(text) for text in root["records/text"][:][:, 0]] == texts


def test_a_row_that_is_written_again_as_it_was_costs_no_chunk(tmp_path):
    store = Writer(tmp_path)
    store.commit(1, *(node(i) for i in range(1, 9)))
    chunks = set((tmp_path / "graph" / "chunks").iterdir())
    assert store.commit(2, *(node(i) for i in range(1, 9))) == 2
    assert set((tmp_path / "graph" / "chunks").iterdir()) == chunks
    assert len(nodes(tmp_path)) == 8


def test_the_files_stay_within_their_budget_and_the_newest_state_is_there(tmp_path):
    store, most = Writer(tmp_path, GraphStoreConfig(budget_mb=0.5)), 0
    for sequence in range(1, 26):
        store.commit(sequence, *(node(i, sequence / 100, f"cube {sequence} {i}") for i in range(1, 41)))
        store.store.wait()
        most = max(most, bytes_in(tmp_path / "graph"))
    assert most < 1 << 19
    assert 1 < len(list_snapshots(tmp_path)) < 25
    store.close()
    assert {n.pose.position[0] for n in nodes(tmp_path)} == {0.25}
    assert len(nodes(tmp_path)) == 40
