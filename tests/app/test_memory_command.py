"""``engram memory ...`` on a store on disk."""

import dataclasses
import datetime as dt
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from zoneinfo import ZoneInfo

import pytest

from engram.app import cli
from engram.app.memory_command import last_written
from engram.memory.graph.places import known_place, table
from engram.memory.robot_memory import RobotMemory
from engram.memory.storage.snapshots import list_snapshots
from engram.memory.storage.store import GraphStore
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


def berlin(month, day, hour, minute=0):
    """Return the stamp of a time of 2025 in Berlin."""
    return round(dt.datetime(2025, month, day, hour, minute, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()) * SECOND


def test_times_of_day_are_those_of_the_machine_at_their_date_unless_an_offset_is_given(tmp_path, capsys, monkeypatch):
    """A cup is moved at half past ten, once in summer and once in winter: today's offset is wrong for one of them."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        with RobotMemory.open(tmp_path / "memory", encoder=default_text_encoder()) as memory:
            for stamp, x in ((berlin(7, 5, 10), 0.4), (berlin(7, 5, 10, 30), 0.5), (berlin(11, 29, 10, 30), 0.6)):
                for second in range(4):
                    memory.update(view([thing("red cup", (x, 0.1, 0.02))], stamp + second * SECOND))
            found = [memory.ask(f"where was the cup {when}") for when in ("2025-07-05 10:01", "2025-11-29 11:00")]
            assert [one.nodes[0].pose.position[0] for one in found] == pytest.approx([0.4, 0.6], abs=0.02)
        asked = ("query", "--store", tmp_path / "memory")
        for when, x in (("2025-07-05 10:01", 0.4), ("2025-07-05 10:31", 0.5), ("2025-11-29 11:00", 0.6)):
            assert f"The red cup was at x {x:.2f}" in engram(capsys, *asked, f"where was the red cup {when}")[1]
        utc = engram(capsys, *asked, "--utc-offset-h", "0", "where was the red cup 2025-07-05 8:01")[1]
        assert "The red cup was at x 0.40" in utc
    finally:
        monkeypatch.undo()
        time.tzset()


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
    assert (
        "--at: 3.0: would change nothing: a .jsonl"
        in engram(capsys, "export", "--store", store, "--at", "3", "a.jsonl")[1]
    )
    assert "suffix '.txt', valid: .jsonl, .graphml" in engram(capsys, "export", "--store", store, "a.txt")[1]
    code, said = engram(capsys, "export", "--store", store, store / "graph" / "all.jsonl")
    assert code == 2 and "lies in the store" in said and not (store / "graph" / "all.jsonl").exists()
    (store / "graph" / "repo").write_bytes(b"nonsense")
    code, said = engram(capsys, "query", "--store", store, "red cup")
    assert code == 2 and "engram memory repair" in said
    assert engram(capsys, "repair", "--store", store)[0] == 0
    assert "at x 0.60" in engram(capsys, "query", "--store", store, "red cup")[1]


@pytest.mark.parametrize("suffix", ["jsonl", "graphml", "sparkdsg"])
def test_an_export_onto_a_full_disk_leaves_the_last_one_as_it_was(store, tmp_path, suffix):
    pytest.importorskip("spark_dsg")
    backup = tmp_path / f"backup.{suffix}"
    done = engram_within(None, "export", "--store", store, backup)
    good = backup.read_bytes()
    assert done.returncode == 0 and len(good) > 1000
    done = engram_within(1000, "export", "--store", store, backup)
    assert done.returncode != 0 and f"{backup}: not written: " in done.stderr and "Traceback" not in done.stderr
    assert backup.read_bytes() == good and sorted(one.name for one in tmp_path.iterdir()) == [backup.name, "memory"]


def engram_within(most_bytes, *words):
    """Run the command in a process of its own that may write files of at most so many bytes."""

    def limit():
        if most_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    code = "import sys; from engram.app import cli; sys.exit(cli.main(sys.argv[1:]))"
    argv = [sys.executable, "-c", code, "memory", *map(str, words)]
    return subprocess.run(argv, preexec_fn=limit, capture_output=True, text=True, timeout=120)


def test_a_backup_that_was_cut_off_makes_no_store(store, tmp_path, capsys):
    assert engram(capsys, "export", "--store", store, tmp_path / "all.jsonl")[0] == 0
    lines = (tmp_path / "all.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "cut.jsonl").write_text("".join(lines[:-3]))
    code, said = engram(capsys, "import", "--store", tmp_path / "new", tmp_path / "cut.jsonl")
    assert code == 2 and f"{tmp_path / 'cut.jsonl'}: ends with line" in said and not (tmp_path / "new").exists()


def test_a_memory_is_carried_into_another_map_once(store, capsys):
    command = ("reanchor", "--store", store, "--map", "house-2")
    shift = ("--transform", "1", "0", "0", "0")
    for words, message in (
        (("reanchor", "--store", store, *shift), "name the new map with --map"),
        (command, "expected --transform X Y Z YAW or, to rename the map alone, --identity"),
        ((*command, *shift, "--identity"), "expected --transform X Y Z YAW or"),
        ((*command, "--transform", "nan", "0", "0", "0"), "(nan, 0.0, 0.0, 0.0), expected finite numbers"),
        ((*command, "--transform", "0", "0", "0", "inf"), "(0.0, 0.0, 0.0, inf), expected finite numbers"),
        ((*command, "--transform", "1e9", "0", "0", "0"), "a shift of 1e+09 m, expected at most 131072 m"),
    ):
        code, said = engram(capsys, *words)
        assert code == 2 and message in said
    assert "at x 0.60" in engram(capsys, "query", "--store", store, "red cup")[1]
    assert engram(capsys, *command, *shift)[0] == 0
    code, said = engram(capsys, *command, *shift)
    assert code == 2 and "the memory is in map 'house-2' already" in said
    assert "at x 1.60" in engram(capsys, "query", "--store", store, "red cup")[1]
    code, said = engram(capsys, "reanchor", "--store", store, "--map", "house-3", "--identity")
    assert code == 0 and "in map 'house-3' from sequence" in said
    assert "at x 1.60" in engram(capsys, "query", "--store", store, "red cup")[1]


@pytest.mark.parametrize(
    "words",
    [
        ("reanchor", "--map", "b", "--identity"), ("merge", "other"), ("unmerge", "1"), ("join", "a", "b"),
        ("keep-apart", "a", "b"), ("repair",),
    ],
)  # fmt: skip
def test_who_changes_a_memory_names_it_where_several_robots_have_one(store, tmp_path, capsys, monkeypatch, words):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    robots = tmp_path / "home" / ".local" / "share" / "engram"
    for robot in ("arm", "sim"):
        shutil.copytree(store, robots / robot / "memory")
    code, said = engram(capsys, *words)
    listed = f"{robots / 'arm' / 'memory'}, {robots / 'sim' / 'memory'}"
    assert code == 2 and f"name the memory to change with --store; there are {listed}" in said
    assert engram(capsys, "query", "red cup")[0] == 0
    shutil.rmtree(robots / "arm")
    assert "name the memory to change" not in engram(capsys, *words)[1]


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


def test_a_conflict_of_two_memories_is_listed_decided_and_undecided_again(store, tmp_path, capsys):
    other = RobotMemory(GraphStore(tmp_path / "other"), encoder=default_text_encoder())
    for second in range(20, 24):
        other.update(view([thing("red cup", (0.3, -0.2, 0.02))], second * SECOND))
    other.commit()
    other.close()
    assert engram(capsys, "conflicts", "--store", store) == (0, "no conflicts\n")
    transform = ("--transform", "0", "0", "0", "0")
    said = engram(capsys, "merge", "--store", store, tmp_path / "other", "--robot", "robot1", *transform)[1]
    (ours,) = [word for word in said.split() if word.startswith("object_")]
    theirs = "robot1/object_0001"
    assert said.endswith(
        f"  conflict: {ours} and {theirs}: one red cup that was moved, or two of them\n"
        "engram memory conflicts says how to decide them\n"
    )
    listed = (
        f"moved: {ours} and {theirs}: one red cup that was moved, or two of them\n"
        f"  one:  engram memory join --store {store} {ours} {theirs}\n"
        f"  two:  engram memory keep-apart --store {store} {ours} {theirs}\n"
    )
    assert engram(capsys, "conflicts", "--store", store) == (0, listed)
    code, said = engram(capsys, "join", "--store", store, ours, theirs)
    number = said.split()[-4]
    assert (code, said) == (
        0, f"joined: {theirs} is part of {ours}; engram memory unmerge {number} takes that back\n"
    )  # fmt: skip
    assert "at x 0.30, y -0.20" in engram(capsys, "query", "--store", store, "red cup")[1]
    assert engram(capsys, "conflicts", "--store", store) == (0, "no conflicts\n")
    assert engram(capsys, "unmerge", "--store", store, number) == (0, f"undone: merge {number}\n")
    assert engram(capsys, "conflicts", "--store", store) == (0, listed)
    code, said = engram(capsys, "keep-apart", "--store", store, ours, theirs)
    assert (code, said) == (0, f"kept apart: {ours} and {theirs}\n")
    assert engram(capsys, "conflicts", "--store", store) == (0, "no conflicts\n")
    for words in (("join", ours, "robot1/object_0002"), ("keep-apart", "robot1/object_0002", ours)):
        code, said = engram(capsys, *words, "--store", store)
        assert code == 2 and "unknown object 'robot1/object_0002'; did you mean 'robot1/object_0001'" in said


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


def test_a_file_that_cannot_be_read_is_named(tmp_path, capsys):
    for name in ("none.jsonl", "none.graphml"):
        code, said = engram(capsys, "import", "--store", tmp_path / "new", tmp_path / name)
        assert code == 2 and f"{tmp_path / name}: " in said and "No such file" in said
    (tmp_path / "folder.jsonl").mkdir()
    code, said = engram(capsys, "import", "--store", tmp_path / "new", tmp_path / "folder.jsonl")
    assert code == 2 and f"{tmp_path / 'folder.jsonl'}: Is a directory" in said


def test_a_robot_that_is_called_like_a_number_is_taken_out_by_its_name(store, tmp_path, capsys):
    """Merge 2 made one of both cups: the robot's name wins as long as it is there."""
    other = RobotMemory(GraphStore(tmp_path / "other"), encoder=default_text_encoder())
    for second in range(1, 5):
        other.update(view([thing("red cup", (0.6, 0.1, 0.02)), thing("green bowl", (0.3, 0.2, 0.02))], second * SECOND))
    other.commit()
    other.close()
    transform = ("--transform", "0", "0", "0", "0")
    merged = ("merge", "--store", store, tmp_path / "other", "--robot", "2", *transform)
    assert "1 objects known to both, 1 new" in engram(capsys, *merged)[1]
    assert "undone: 2 objects" in engram(capsys, "unmerge", "--store", store, "2")[1]
    assert "nothing like 'green bowl'" in engram(capsys, "query", "--store", store, "green bowl")[1]
    code, said = engram(capsys, "unmerge", "--store", store, "2")
    assert code == 2 and "no memory of '2' was merged; merge 2: not one that can be undone" in said


def test_the_history_of_what_is_gone_is_found_by_its_label(store, capsys):
    memory = RobotMemory(GraphStore(store), encoder=default_text_encoder())
    for second in range(20, 25):
        memory.update(view([], second * SECOND))
    (cup,) = [node.id for node in memory.graph().nodes if node.label == "red cup"]
    memory.tracker.expired.add(cup)
    memory.update(view([], 30 * SECOND))
    memory.commit()
    memory.close()
    memory.scene.store.close()
    code, said = engram(capsys, "history", "--store", store, "red cup")
    assert code == 0 and f"{cup} red cup: at (0.40, 0.10, 0.02)" in said
    assert said == engram(capsys, "history", "--store", store, cup)[1]


def test_the_search_that_is_advised_is_told_in_words_and_as_json(tmp_path, capsys):
    """Two places that nobody has looked at; the robot stands at the sideboard."""
    sideboard = known_place("place", "sideboard", (0.5, 4.0, -0.02), (1.2, 1.6, 0.04))
    memory = RobotMemory(GraphStore(tmp_path), encoder=default_text_encoder(), places=[table(), sideboard])
    memory.update(view([thing("red cup", (0.4, 9.0, 0.02))], SECOND))
    memory.commit()
    memory.close()
    asked = ("query", "--store", tmp_path, "where is the green spoon", "--robot-at", "0.5", "4", "0")
    said = engram(capsys, *asked)[1].splitlines()
    assert said[-2].startswith("Look at the sideboard")
    stops = re.fullmatch(
        r"In this order: the sideboard \(0.50, 4.00, -?0.0\d\) (\d+) %, the table \(0.50, 0.00, -?0.0\d\) (\d+) %.",
        said[-1],
    )
    assert stops and engram(capsys, *asked, "--limit", "1")[1].splitlines()[-1].endswith(" %, and 1 more.")
    code, text = engram(capsys, *asked, "--limit", "1", "--json")
    found = json.loads(text)
    assert code == 0 and found["answer"].startswith("I know of nothing like 'green spoon'.")
    assert (found["nodes"], found["age_s"]) == ([], None)
    route = found["advice"]["route"]
    assert found["advice"]["look"] and [stop["label"] for stop in route] == ["the sideboard", "the table"]
    assert [stop["place"][1] for stop in route] == [4.0, 0.0]
    assert [f"{100 * stop['chance']:.0f}" for stop in route] == list(stops.groups())
    known = json.loads(engram(capsys, "query", "--store", tmp_path, "where is the red cup", "--json")[1])
    (cup,) = known["nodes"]
    assert (cup["id"], cup["label"], cup["frame"]) == ("object_0001", "red cup", "base_link")
    assert cup["place"] == pytest.approx([0.4, 9.0, 0.02]) and known["evidence"][0]["source"]


def test_while_a_node_holds_the_store_who_writes_is_sent_to_its_service_and_who_reads_is_not(store, tmp_path, capsys):
    held = GraphStore(store)
    shutil.copytree(store, tmp_path / "other", ignore=shutil.ignore_patterns("writer.lock"))
    for words, service in (
        (("join", "object_0001", "object_0002"), "memory/resolve"),
        (("keep-apart", "object_0001", "object_0002"), "memory/resolve"),
        (("merge", tmp_path / "other"), "memory/merge"),
        (("unmerge", "robot1"), "memory/merge or memory/resolve, with undo"),
    ):
        code, said = engram(capsys, *words, "--store", store)
        assert code == 2 and f"already being written by process {os.getpid()}" in said
        assert said.endswith(f"if that is a memory node, call its service {service}\n")
    assert engram(capsys, "conflicts", "--store", store) == (0, "no conflicts\n")
    held.close()
