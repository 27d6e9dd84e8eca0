"""When a store's folder is counted, and what then may stay."""

from __future__ import annotations

import pytest

from engram.memory.disk_budget import DiskBudget


@pytest.mark.parametrize(
    "kilobytes", [lambda commit: 100, lambda commit: 50 + 25 * min(commit, 26), lambda commit: 600]
)
def test_the_budget_holds_at_every_commit_also_as_they_grow(tmp_path, kilobytes):
    """Files of a commit each, of which the oldest go; 8 MB."""
    budget, files = DiskBudget(tmp_path, 8 << 20), []
    for commit in range(60):
        files.append(tmp_path / str(commit))
        files[-1].write_bytes(bytes(kilobytes(commit) << 10))
        share = budget.share()
        assert sum(file.stat().st_size for file in files) <= 8 << 20, commit
        for file in files[: len(files) - max(1, int(share * len(files)))]:
            file.unlink()
        files = [file for file in files if file.exists()]


def test_a_folder_with_much_room_is_seldom_counted(tmp_path, monkeypatch):
    counted = []
    monkeypatch.setattr("engram.memory.disk_budget.bytes_in", lambda folder: counted.append(folder) or 1000)
    budget = DiskBudget(tmp_path, 1 << 30)
    assert {budget.share() for _ in range(301)} == {1.0}
    assert len(counted) == 4
