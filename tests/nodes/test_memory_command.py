"""``engram memory ...`` on a store on disk."""

import dataclasses
import os
import shutil

import pytest

from engram.memory.robot_memory import RobotMemory
from engram.memory.store import GraphStore, list_snapshots
from engram.nodes import cli
from engram.nodes.memory_command import last_written
from engram.perception.embedding import default_text_encoder
from tests.memory.scenes import seen, view

SECOND = 10**9


def thing(label, place):
    return dataclasses.replace(seen(label, place), embedding=default_text_encoder().encode([label])[0])


@pytest.fixture
def store(tmp_path):
    """A red cup at x 0.4 until 10 s, then at x 0.6; a simulation's clock."""
    memory = RobotMemory(GraphStore(tmp_path / "memory"), encoder=default_text_encoder())
    for second in range(1, 5):
        memory.update(view([thing("red cup", (0.4, 0.1, 0.02))], second * SECOND))
    memory.commit()
    for second in range(10, 14):
        memory.update(view([thing("red cup", (0.6, 0.1, 0.02))], second * SECOND))
    memory.commit()
    memory.close()
    memory.scene.store.close()
    return tmp_path / "memory"


def engram(capsys, *words):
    code = cli.main(["memory", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out + err


def test_it_answers_now_then_and_from_a_past_snapshot(store, capsys):
    assert "The red cup is at x 0.60" in engram(capsys, "query", "--store", store, "where is the red cup")[1]
    habits = engram(capsys, "query", "--store", store, "--limit", "20", "red cup")[1]
    assert "semantic: the red cup is usually at the table: 100 % of the time" in habits
    code, said = engram(capsys, "query", "--store", store, "where was the red cup at 3 s")
    assert code == 0 and "The red cup was at x 0.40" in said and "front@1000000000" in said
    first = list_snapshots(store)[-1].id
    past = engram(capsys, "query", "--store", store, "--snapshot", first, "where is the red cup")[1]
    assert "The red cup is at x 0.40" in past


def test_history_tells_when_it_was_true_and_when_it_was_believed(store, capsys):
    said = engram(capsys, "history", "--store", store, "red cup")[1]
    assert "true      1.0 s .. 10.0 s, last seen 4.0 s" in said
    assert "true      10.0 s .. now" in said
    assert "unknown node or label 'red cpu'; did you mean 'red cup'" in engram(
        capsys, "history", "--store", store, "red cpu"
    )[1]  # fmt: skip


def test_snapshots_export_import_and_repair(store, tmp_path, capsys):
    assert len(engram(capsys, "snapshots", "--store", store)[1].splitlines()) == 2
    assert engram(capsys, "export", "--store", store, tmp_path / "all.jsonl")[0] == 0
    assert engram(capsys, "import", "--store", tmp_path / "new", tmp_path / "all.jsonl")[0] == 0
    assert "at x 0.60" in engram(capsys, "query", "--store", tmp_path / "new", "red cup")[1]
    assert engram(capsys, "export", "--store", store, tmp_path / "now.graphml")[0] == 0
    assert engram(capsys, "import", "--store", tmp_path / "graphml", tmp_path / "now.graphml")[0] == 0
    assert "at x 0.60" in engram(capsys, "query", "--store", tmp_path / "graphml", "red cup")[1]
    assert "suffix '.txt', valid: .jsonl, .graphml" in engram(capsys, "export", "--store", store, "a.txt")[1]
    (store / "graph" / "repo").write_bytes(b"nonsense")
    code, said = engram(capsys, "query", "--store", store, "red cup")
    assert code == 2 and "engram memory repair" in said
    assert engram(capsys, "repair", "--store", store)[0] == 0
    assert "at x 0.60" in engram(capsys, "query", "--store", store, "red cup")[1]


def test_two_stores_merge_and_come_apart(store, tmp_path, capsys):
    other = RobotMemory(GraphStore(tmp_path / "other"), encoder=default_text_encoder())
    other.update(view([thing("green bowl", (0.3, 0.2, 0.02))], SECOND))
    other.commit()
    other.close()
    transform = ("--transform", "0.1", "0", "0", "0")
    said = engram(capsys, "merge", "--store", store, tmp_path / "other", "--robot", "robot1", *transform)[1]
    assert "0 objects known to both, 1 new" in said
    assert "at x 0.40, y 0.20" in engram(capsys, "query", "--store", store, "green bowl")[1]
    assert "undone: 1 objects" in engram(capsys, "unmerge", "--store", store, "robot1")[1]
    assert "nothing like 'green bowl'" in engram(capsys, "query", "--store", store, "green bowl")[1]
    assert "no memory of 'robot1' was merged" in engram(capsys, "unmerge", "--store", store, "robot1")[1]


def test_without_a_folder_it_asks_the_robot_that_remembered_last(store, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    code, said = engram(capsys, "query", "where is the red cup")
    assert code != 0 and "no robot has a memory there; run engram demo, or name a folder with --store" in said
    robots = tmp_path / "home" / ".local" / "share" / "engram"
    for robot in ("old", "sim"):
        shutil.copytree(store, robots / robot / "memory")
    os.utime(robots / "old" / "memory" / "graph" / "repo", (0, 0))
    assert last_written(robots) == robots / "sim" / "memory"
    assert "The red cup is at x 0.60" in engram(capsys, "query", "where is the red cup")[1]
    assert "name its folder with --store" in engram(capsys, "import", tmp_path / "all.jsonl")[1]
