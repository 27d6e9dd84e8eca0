"""Who writes to a store from the command line names one that is there."""

import os

import pytest

from engram.app import cli
from engram.app.memory_opening import check_store
from engram.core.errors import StoreError
from engram.memory.robot_memory import RobotMemory
from tests.memory.scenes import WordEncoder, seen, view

WRITERS = (
    ("join", "object_0001", "object_0002"),
    ("keep-apart", "object_0001", "object_0002"),
    ("unmerge", "robot1"),
    ("repair",),
    ("reanchor", "--map", "b", "--identity"),
)


@pytest.fixture
def store(tmp_path):
    with RobotMemory.open(tmp_path / "mine", encoder=WordEncoder()) as memory:
        for second in range(1, 5):
            memory.update(view([seen("red cup", (0.4, 0.1, 0.02))], second * 10**9))
        memory.commit()
    return tmp_path / "mine"


def test_a_mistyped_store_is_named_and_none_begins_there(store, capsys):
    typo = store.with_name("mime")
    for words in (("merge", str(store), "--transform", "0", "0", "0", "0"), *WRITERS):
        assert cli.main(["memory", *words, "--store", str(typo)]) == 2
        assert f"{typo}: no memory store there; engram memory import makes a new one" in capsys.readouterr().err
        assert not typo.exists()


def test_a_store_is_not_merged_into_itself(store, capsys, monkeypatch):
    monkeypatch.chdir(store)
    link = store.with_name("link")
    link.symlink_to(store)
    before = (store / "head.json").read_bytes()
    for other in (store, link, os.path.relpath(store)):
        assert cli.main(["memory", "merge", "--store", str(store), str(other)]) == 2
        assert f"{other}: a store cannot be merged into itself" in capsys.readouterr().err
    assert (store / "head.json").read_bytes() == before


def test_a_store_whose_repository_is_aside_is_one_and_any_other_folder_is_none(tmp_path):
    for name in ("graphics", "graph_old"):
        (tmp_path / name).mkdir()
    with pytest.raises(StoreError, match="no memory store there"):
        check_store(tmp_path)
    (tmp_path / "graph.ahead").mkdir()  # opening it puts that back
    check_store(tmp_path)
