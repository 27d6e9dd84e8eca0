"""The last command outlives the process; what is not surely that counts as none."""

import os

import numpy as np
import pytest

from engram.runtime.last_command import GivenCommand, LastCommandFile
from engram.runtime.stop_latch import Latched

JOINTS = ("x", "y", "gripper")
RUNNING = Latched("", 3, "01.02 07")
STATE = np.array([0.1, -0.2, 1 / 3, 1e-300, -0.0, 7.5, 0.8])


def given(episode: int = 3, stamp_ns: int = 10**18 + 1, state: np.ndarray = STATE) -> GivenCommand:
    return GivenCommand(episode, stamp_ns, 12.5, state)


def file(folder, joints=JOINTS, control_dt_s: float = 0.1) -> LastCommandFile:
    return LastCommandFile(folder, joints, control_dt_s)


def written(folder, *commands: GivenCommand) -> LastCommandFile:
    kept = file(folder)
    for command in commands or (given(),):
        kept.write(command, RUNNING)
    assert not kept.problem
    return kept


def test_the_newest_command_is_there_in_the_next_process_to_the_bit(tmp_path):
    written(tmp_path / "new", given(stamp_ns=1), given())
    left = file(tmp_path / "new").read(RUNNING)
    assert (left.episode, left.stamp_ns, left.at_s) == (3, 10**18 + 1, 12.5)
    assert left.state.tobytes() == STATE.tobytes()


def test_no_command_waits_for_the_disk(tmp_path, monkeypatch):
    def sync(handle):
        raise AssertionError("synced")

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "fdatasync", sync)
    written(tmp_path)


@pytest.mark.parametrize(
    "running", [Latched("", 4, RUNNING.writers), Latched("", 3, "01.03"), Latched("", -1, RUNNING.writers), Latched()]
)
def test_of_another_episode_or_another_who_tells_of_it_there_is_none(running, tmp_path):
    written(tmp_path)
    assert file(tmp_path).read(running) is None


@pytest.mark.parametrize("other", [{"joints": ("x", "z", "gripper")}, {"control_dt_s": 0.05}])
def test_of_another_robot_there_is_none(other, tmp_path):
    written(tmp_path)
    assert file(tmp_path, **other).read(RUNNING) is None


def test_a_command_out_of_the_episode_is_not_kept(tmp_path):
    kept = written(tmp_path)
    kept.write(given(episode=4), RUNNING)
    assert kept.read(RUNNING).stamp_ns == given().stamp_ns


def test_every_damaged_byte_and_every_torn_record_counts_as_none(tmp_path):
    path = written(tmp_path).path
    good = path.read_bytes()
    for i in range(len(good)):
        path.write_bytes(good[:i] + bytes([good[i] ^ 1]) + good[i + 1 :])
        assert file(tmp_path).read(RUNNING) is None, i
        path.write_bytes(good[:i])
        assert file(tmp_path).read(RUNNING) is None, i


def test_what_lies_behind_a_record_does_not_matter(tmp_path):
    """As after a robot with more joints."""
    kept = written(tmp_path, given(state=np.ones(40)), given())
    np.testing.assert_array_equal(kept.read(RUNNING).state, STATE)


@pytest.mark.parametrize("why", ["link", "pipe", "folder"])
def test_what_is_no_file_is_named_and_neither_followed_nor_waited_for(why, tmp_path):
    path, other = tmp_path / "last_command.bin", tmp_path / "other"
    other.write_bytes(b"another file")
    {"link": lambda: path.symlink_to(other), "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}[why]()
    kept = file(tmp_path)
    kept.write(given(), RUNNING)
    assert kept.problem.startswith(f"{path}: after a restart in motion the arm would not brake from it: ")
    assert kept.read(RUNNING) is None and other.read_bytes() == b"another file"
    path.rmdir() if why == "folder" else path.unlink()
    kept.write(given(), RUNNING)
    assert not kept.problem and kept.read(RUNNING) is not None


def test_a_file_that_somebody_deleted_is_made_again(tmp_path):
    kept = written(tmp_path / "stop")
    kept.path.unlink()
    kept.path.parent.rmdir()
    kept.write(given(stamp_ns=5), RUNNING)
    assert kept.read(RUNNING).stamp_ns == 5


def test_a_command_that_is_written_in_part_is_named(tmp_path, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda handle, data, at: real(handle, data[:20], at))
    kept = file(tmp_path)
    kept.write(given(), RUNNING)
    assert "No space left" in kept.problem and kept.read(RUNNING) is None


def test_after_a_close_the_next_command_opens_the_file_again(tmp_path):
    kept = written(tmp_path)
    kept.close()
    kept.close()
    kept.write(given(stamp_ns=5), RUNNING)
    assert kept.read(RUNNING).stamp_ns == 5


def test_without_a_folder_nothing_is_kept():
    kept = file(None)
    kept.write(given(), RUNNING)
    assert (kept.read(RUNNING), kept.problem) == (None, "")
    kept.close()
