"""Places are found to be of use, or not, before the work whose result would go there."""

import os
import shutil
import tempfile
from types import SimpleNamespace

import pytest

from engram.core.errors import EngramError, InvalidInputError
from engram.core.paths import check_apart, check_free, check_new_folder


def test_a_folder_that_can_be_made_or_is_there_is_taken_and_not_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in (str(tmp_path / "deep" / "new"), str(tmp_path), "new", ".", "data.frames"):
        check_new_folder("out", place, {"dataset": "data", "backbone": ""})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["data", "data/new", "data/meta/deep/new", "other/../data/new", "link/new", "."])
def test_what_is_read_is_not_written_into_by_whatever_name(tmp_path, monkeypatch, place):
    (tmp_path / "data" / "meta").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to("data/meta")
    monkeypatch.chdir(tmp_path / "data" if place == "." else tmp_path)
    with pytest.raises(InvalidInputError, match=rf"out '{place}': lies in dataset '{tmp_path}/data', which would be"):
        check_new_folder("out", place, {"start_from": "", "dataset": tmp_path / "data"})
    for beside in ("database", "", "data2/data"):
        check_apart("out", str(tmp_path / beside), {"dataset": tmp_path / "data"})


def test_what_is_no_folder_or_lies_below_a_file_is_named(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(InvalidInputError, match="out '': expected the name of a folder"):
        check_new_folder("out", "", {})
    for place, culprit in (("file", "file"), ("file/new/deep", "file"), ("dangling/new", "dangling")):
        with pytest.raises(InvalidInputError, match=f"out '{tmp_path}/{place}': {tmp_path}/{culprit} is no folder"):
            check_new_folder("out", str(tmp_path / place), {})


def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    def read_only(dir):
        raise OSError(30, os.strerror(30), dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", read_only)  # root may write everywhere
    with pytest.raises(InvalidInputError, match=f"out '{tmp_path}/a/b': {tmp_path} cannot be written: Read-only file"):
        check_new_folder("out", str(tmp_path / "a" / "b"), {})


def test_a_disk_with_too_little_room_is_told_in_bytes(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(shutil, "disk_usage", lambda at: asked.append(at) or SimpleNamespace(free=99))
    check_free(tmp_path / "deep" / "new", 99)
    with pytest.raises(EngramError, match=f"{tmp_path}/new: 100 bytes are needed on its disk, 99 are free; nothing"):
        check_free(tmp_path / "new", 100)
    assert asked == [tmp_path, tmp_path]
