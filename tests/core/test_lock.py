"""A lock that tidies up after itself removes what it made, and lets nobody in beside another."""

import fcntl
import os
import threading

import pytest

from engram.core.errors import StoreError, StoreLockedError
from engram.core.lock import WriterLock


def test_a_folder_that_was_made_and_stayed_empty_goes_with_the_lock_and_so_do_those_above_it(tmp_path):
    (tmp_path / "mine").mkdir()
    WriterLock(tmp_path / "mine" / "deep" / "out").release(tidy=True)
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]
    WriterLock(tmp_path / "mine").release(tidy=True)  # the folder was there before
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]


def test_a_folder_in_which_something_was_written_stays(tmp_path):
    for folder, written in ((tmp_path / "a" / "out", "out/log"), (tmp_path / "b" / "out", "notes")):
        lock = WriterLock(folder)
        (folder.parent / written).touch()
        lock.release(tidy=True)
        lock.release(tidy=True)
    assert sorted(path.name for path in (tmp_path / "a" / "out").iterdir()) == ["log", "writer.lock"]
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["notes"]


def test_without_being_told_to_tidy_up_a_lock_leaves_its_folder(tmp_path):
    WriterLock(tmp_path / "out").release()
    assert (tmp_path / "out" / "writer.lock").is_file()


def test_a_folder_that_took_the_place_of_the_locked_one_is_not_removed(tmp_path):
    lock = WriterLock(tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / "moved")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "writer.lock").touch()
    lock.release(tidy=True)
    assert (tmp_path / "out" / "writer.lock").is_file() and (tmp_path / "moved" / "writer.lock").is_file()


@pytest.mark.parametrize("opened", [0, 1, 2])
def test_who_opens_a_folder_as_another_tidies_it_away_locks_the_one_that_stands_there(tmp_path, monkeypatch, opened):
    """Before anything, the folder alone, or its file too is opened; nothing is locked yet."""
    first, real, calls = WriterLock(tmp_path / "out"), os.open, iter(range(1000))

    def opens(*args):
        if next(calls) == opened:
            first.release(tidy=True)
        return real(*args)

    def flock(*args):
        first.release(tidy=True)
        return real_flock(*args)

    real_flock = fcntl.flock
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", opens)
        patched.setattr(fcntl, "flock", flock)
        second = WriterLock(tmp_path / "out")
    second.check()
    with pytest.raises(StoreLockedError):
        WriterLock(tmp_path / "out")
    second.release(tidy=True)
    assert not (tmp_path / "out").exists()


def test_of_many_who_lock_and_tidy_up_at_once_one_is_in_and_none_finds_its_folder_gone(tmp_path):
    inside, taken, wrong = [], [], []

    def contend():
        for _ in range(100):
            try:
                lock = WriterLock(tmp_path / "deep" / "out")
            except StoreLockedError:
                continue
            except StoreError as error:
                wrong.append(error)
                continue
            inside.append(1)
            if len(inside) > 1:
                wrong.append("two at once")
            try:
                lock.check()
            except StoreError as error:
                wrong.append(error)
            inside.pop()
            taken.append(1)
            lock.release(tidy=True)

    threads = [threading.Thread(target=contend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken and not wrong


def test_a_lock_that_cannot_be_had_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "ftruncate", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(StoreError, match="out: cannot be written as a store: No space left on device"):
        WriterLock(tmp_path / "deep" / "out")
    assert not list(tmp_path.iterdir())
