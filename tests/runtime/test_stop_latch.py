"""A latched stop outlives the process, whatever happens to its file."""

import os
import shutil

import pytest

from engram.core.types import EpisodeStatus
from engram.runtime.stop_latch import DAMAGED, LAST_COMMAND, RESTARTED, StopLatch


def writers(*names: str):
    return lambda: names


SIM, NEW_SIM, STRANGER = writers("01.02"), writers("01.03"), writers("09")


def status(episode: int = 3, state: str = "running", step: int = 5, stamp_ns: int = 0) -> EpisodeStatus:
    return EpisodeStatus(stamp_ns, "r", episode, "reach", "go", step, state)


def test_a_stop_is_there_in_the_next_process_until_it_is_released(tmp_path):
    StopLatch(tmp_path / "new").stop("button")
    assert StopLatch(tmp_path / "new").stopped == "button"
    StopLatch(tmp_path / "new").release()
    assert StopLatch(tmp_path / "new").stopped == ""


def test_it_is_fsynced_with_its_folder_before_the_stop_returns(tmp_path, monkeypatch):
    synced, real = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda handle: (synced.append(os.readlink(f"/proc/self/fd/{handle}")), real(handle))
    )
    StopLatch(tmp_path).stop("button")
    assert synced == [str(tmp_path / f"stop.json.{os.getpid()}.partial"), str(tmp_path)]


@pytest.mark.parametrize("bytes_kept", [0, 1, 20, -1])
def test_a_damaged_file_counts_as_stopped(tmp_path, bytes_kept):
    StopLatch(tmp_path).saw(status(), SIM)
    path = tmp_path / "stop.json"
    path.write_bytes(path.read_bytes()[:bytes_kept])
    assert StopLatch(tmp_path).stopped.startswith(DAMAGED)


def test_every_damaged_byte_counts_as_stopped_or_changes_nothing(tmp_path):
    StopLatch(tmp_path).stop("button")
    path = tmp_path / "stop.json"
    good = path.read_bytes()
    for i in range(len(good)):
        path.write_bytes(good[:i] + bytes([good[i] ^ 1]) + good[i + 1 :])
        assert StopLatch(tmp_path).stopped, i


def test_a_file_that_cannot_be_read_counts_as_stopped(tmp_path):
    (tmp_path / "stop.json").mkdir()
    assert StopLatch(tmp_path).stopped.startswith(DAMAGED)


def test_a_stop_that_cannot_be_written_is_latched_and_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    latch = StopLatch(tmp_path / "file" / "folder")
    latch.stop("button")
    assert latch.stopped == "button"
    assert "would not survive a restart" in latch.problem


def tampered(folder, how: str):
    """Do to the file of the latch what somebody may do while a process keeps it."""
    path = folder / "stop.json"
    released = path.read_bytes().replace(b"button", b"")
    if how == "emptied":
        path.write_bytes(b"")
    elif how == "folder deleted":
        shutil.rmtree(folder)
    else:
        path.unlink()
    if how == "replaced":
        path.write_bytes(released)


@pytest.mark.parametrize("how", ["deleted", "emptied", "replaced", "folder deleted"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_that_somebody_deletes_or_changes_meanwhile_is_written_again_once(tmp_path, how, restarted):
    latch = StopLatch(tmp_path / "stop")
    latch.saw(status(), SIM)
    latch.stop("button")
    if restarted:
        latch = StopLatch(tmp_path / "stop")  # it has read the file alone
    tampered(tmp_path / "stop", how)
    assert latch.again() == f"{latch.path}: somebody deleted or changed it; it was written again"
    assert StopLatch(tmp_path / "stop").now == latch.now
    written = latch.path.stat()
    assert latch.again() == "" and os.path.samestat(latch.path.stat(), written)


def test_before_the_first_stop_or_episode_there_is_nothing_to_write_again(tmp_path):
    latch = StopLatch(tmp_path / "new")
    assert (latch.again(), latch.stopped) == ("", "")
    assert not (tmp_path / "new").exists()


def test_a_last_command_without_a_latch_counts_as_stopped(tmp_path):
    """It is written after the latch alone: somebody has deleted that."""
    assert StopLatch(tmp_path).stopped == ""
    (tmp_path / LAST_COMMAND).touch()
    assert StopLatch(tmp_path).stopped.startswith(DAMAGED)


def test_a_process_that_begins_within_an_episode_holds_it(tmp_path):
    assert StopLatch(tmp_path).saw(status(), SIM) == ""
    again = StopLatch(tmp_path)
    assert again.unfinished
    assert again.saw(status(), SIM) == RESTARTED
    assert again.saw(status(), SIM) == ""  # said once: the caller latches it
    assert again.saw(status(4), SIM) == ""


@pytest.mark.parametrize(
    ("next_status", "writer"), [(status(4), SIM), (status(3), NEW_SIM), (status(3, "failed"), SIM)]
)
def test_another_episode_needs_no_release(tmp_path, next_status, writer):
    StopLatch(tmp_path).saw(status(3), SIM)
    assert StopLatch(tmp_path).saw(next_status, writer) == ""


def test_an_episode_of_the_same_number_by_another_writer_is_noted_as_its_own(tmp_path):
    """A policy node that was killed counts from one again; then this process is killed, too."""
    latch = StopLatch(tmp_path)
    latch.saw(status(1, step=0, stamp_ns=1), SIM)  # on a robot, once a goal
    latch.saw(status(1, step=0, stamp_ns=2), NEW_SIM)
    assert StopLatch(tmp_path).saw(status(1, step=0, stamp_ns=2), NEW_SIM) == RESTARTED


def test_the_writer_may_be_one_of_several(tmp_path):
    StopLatch(tmp_path).saw(status(3), writers("01.02", "07"))
    assert StopLatch(tmp_path).saw(status(3), writers("09", "01.02")) == RESTARTED


def test_a_stranger_does_not_clear_the_episode_that_ran(tmp_path):
    StopLatch(tmp_path).saw(status(3), SIM)
    again = StopLatch(tmp_path)
    assert again.saw(status(0, "idle"), STRANGER) == ""
    assert again.saw(status(3), SIM) == RESTARTED


def test_an_episode_that_ended_before_the_process_did_holds_nothing(tmp_path):
    latch = StopLatch(tmp_path)
    latch.saw(status(3), SIM)
    latch.saw(status(3, "succeeded"), SIM)
    assert not StopLatch(tmp_path).unfinished


def test_only_changes_are_written(tmp_path):
    latch = StopLatch(tmp_path)
    latch.saw(status(), SIM)
    (tmp_path / "stop.json").unlink()
    latch.saw(status(), SIM)
    assert not (tmp_path / "stop.json").exists()


def test_without_a_folder_nothing_is_kept():
    latch = StopLatch(None)
    latch.stop("button")
    assert (latch.stopped, StopLatch(None).stopped) == ("button", "")


def test_a_file_that_is_gone_and_cannot_be_written_is_not_said_to_be_written(tmp_path):
    folder = tmp_path / "safety"
    folder.mkdir()
    latch = StopLatch(folder)
    latch.stop("by ann")
    shutil.rmtree(folder)
    folder.touch()  # a file where the folder was
    for _ in range(2):
        assert latch.again() == "" and "would not survive a restart" in latch.problem
    folder.unlink()
    assert "written again" in latch.again() and latch.problem == ""
