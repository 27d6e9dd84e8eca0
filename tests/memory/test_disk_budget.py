"""When a store's folder is counted, and what then may stay."""

from __future__ import annotations

import numpy as np
import pytest

from engram.memory.graph_memory import GraphMemory
from engram.memory.storage import disk_budget
from engram.memory.storage.disk_budget import DiskBudget, bytes_in
from engram.memory.storage.snapshots import list_snapshots
from engram.memory.storage.store import GraphStore, GraphStoreConfig

from .scenes import seen, view


@pytest.mark.parametrize(
    "kilobytes",
    [
        lambda commit: 100,
        lambda commit: 50 + 25 * min(commit, 26),
        lambda commit: 600,
        lambda commit: 10 if commit < 100 else 300,
        lambda commit: 1 if commit < 100 else 800,
    ],
)
@pytest.mark.parametrize("told", [True, False])
def test_the_budget_holds_at_every_commit_also_as_they_grow(tmp_path, kilobytes, told, monkeypatch):
    """Files of a commit each, of which the oldest go; 8 MB, and whether the system tells what was written."""
    if not told:
        monkeypatch.setattr(disk_budget, "written_bytes", lambda: None)
    budget, files = DiskBudget(tmp_path, 8 << 20), []
    for commit in range(140):
        files.append(tmp_path / str(commit))
        files[-1].write_bytes(bytes(kilobytes(commit) << 10))
        assert bytes_in(tmp_path) <= 8 << 20, commit
        while (share := budget.share()) < 1.0 and len(files) > 1:
            old = len(files) - max(1, int(share * len(files)))
            for file in files[:old]:
                file.unlink()
            del files[:old]


def test_a_folder_with_much_room_is_seldom_counted(tmp_path, monkeypatch):
    counted = []
    monkeypatch.setattr("engram.memory.storage.disk_budget.bytes_in", lambda folder: counted.append(folder) or 1000)
    budget = DiskBudget(tmp_path, 1 << 30)
    assert {budget.share() for _ in range(301)} == {1.0}
    assert len(counted) == 4


def test_a_folder_is_counted_again_once_its_room_is_written(tmp_path, monkeypatch):
    """Of 1000 bytes 900 may be filled: 400 are there, so that it is counted after the next 500."""
    written, counted = [7000], []
    monkeypatch.setattr(disk_budget, "written_bytes", lambda: written[0])
    monkeypatch.setattr(disk_budget, "bytes_in", lambda folder: counted.append(written[0]) or 400)
    budget = DiskBudget(tmp_path, 1000)
    for total in (7000, 7200, 7499, 7500, 7600, 8000):
        written[0] = total
        assert budget.share() == 1.0
    assert counted == [7000, 7500, 8000]


def test_the_system_tells_what_was_written(tmp_path):
    before = disk_budget.written_bytes()
    if before is None:
        pytest.skip("this system does not tell")
    (tmp_path / "file").write_bytes(bytes(100_000))
    assert disk_budget.written_bytes() - before >= 100_000


def test_a_store_stays_within_its_budget_when_quiet_days_end(tmp_path):
    """1 MB: 16 commits of one thing that lies there, then 20 of 15 new things each."""
    memory = GraphMemory(GraphStore(tmp_path, GraphStoreConfig(budget_mb=1.0)))
    draw, sizes = np.random.default_rng(0), []
    for commit in range(36):
        names = ["red cube"] if commit < 16 else [f"thing {commit} {i}" for i in range(15)]
        spots = draw.uniform((0.1, -0.4), (0.9, 0.4), (len(names), 2)) if commit >= 16 else [(0.5, 0.0)]
        things = [seen(name, (*spot, 0.02)) for name, spot in zip(names, spots, strict=True)]
        memory.update(view(things, commit * 10**9))
        memory.commit()
        sizes.append(bytes_in(tmp_path / "graph"))
    assert max(sizes) <= 1 << 20
    memory.store.close()


def test_lists_of_snapshots_that_were_written_over_are_not_kept(tmp_path):
    """icechunk keeps one a commit for good, each as long as all before: they would fill any budget."""
    memory = GraphMemory(GraphStore(tmp_path, GraphStoreConfig(keep_snapshots=3, expire_every=6)))
    for commit in range(6):
        memory.update(view([seen("red cube", (0.5, 0, 0.02))], commit * 10**9))
        memory.commit()
    memory.store.wait()
    assert len(list((tmp_path / "graph" / "overwritten").iterdir())) < 4
    memory.store.close()
    again = GraphStore(tmp_path)
    assert len(list_snapshots(tmp_path)) == 3 and again.load().sequence == 6
    again.close()
