"""Shared memory of dead processes goes, that of living ones stays: with lock files, and with a real killed node."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engram.app import doctor
from engram.app.doctor import DoctorConfig
from engram.app.shared_memory import FOLDER, dead_files, remove_dead_files
from tests.conftest import free_domain

HOLD = """
import fcntl, sys, time
files = [open(name, "rb+") for name in sys.argv[1:]]
for file in files:
    fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""
NODE = """
import rclpy, time
rclpy.init()
node = rclpy.create_node("left_behind")
print("up", flush=True)
time.sleep(60)
"""


def start(code: str, *arguments: object, **environment: str) -> subprocess.Popen:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **environment})
    assert child.stdout is not None
    child.stdout.readline()
    return child


def kill(child: subprocess.Popen) -> None:
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()


def write(folder: Path, *names: str, size: int = 0) -> None:
    for name in names:
        (folder / name).write_bytes(bytes(size))


def test_only_what_nobody_holds_goes(tmp_path):
    dead, living = "fastdds_0123456789abcdef", "fastdds_fedcba9876543210"
    write(tmp_path, dead, living, size=4096)
    write(tmp_path, f"{dead}_el", f"{dead}_sl", f"{living}_el", f"{living}_sl")
    # the next process takes up a dead one's port, and would be left in a file that nobody finds
    stays = {"fastdds_port7411", "fastdds_port7411_el", "sem.fastdds_port7411_mutex", "sem.other", "something_el"}
    write(tmp_path, *stays)
    child = start(HOLD, tmp_path / f"{living}_sl")
    assert remove_dead_files(tmp_path, young_s=60) == (0, 0)  # they may be about to be locked
    assert dead_files(tmp_path, young_s=0) == (1, 4096)
    assert remove_dead_files(tmp_path, young_s=0) == (1, 4096)
    left = {p.name for p in tmp_path.iterdir()}
    assert not left & {dead, f"{dead}_el"}
    assert {living, f"{living}_el", f"{living}_sl"} <= left  # one of its two locks is held
    kill(child)
    assert remove_dead_files(tmp_path, young_s=0)[0] == 1
    assert {p.name for p in tmp_path.iterdir()} == stays


def test_a_folder_that_does_not_exist_holds_nothing(tmp_path):
    assert remove_dead_files(tmp_path / "none") == (0, 0)


@pytest.mark.ros
def test_a_node_killed_by_9_leaves_what_is_found_and_removed_and_the_living_keeps_its_own():
    domain = free_domain()  # what other nodes of ours have opened of theirs is not dead
    killed = start(NODE, ROS_DOMAIN_ID=domain)
    own = segments(killed)
    living = start(NODE, ROS_DOMAIN_ID=domain)
    others = segments(living) - own  # it may have opened the other one's, too
    assert own and others
    kill(killed)
    assert all((FOLDER / name).exists() for name in own)
    for name in own:  # as if it had died a while ago
        for lock in FOLDER.glob(f"{name}_[es]l"):
            os.utime(lock, (0, 0))
    assert dead_files()[0] >= 1
    check = doctor.check_shm_left(DoctorConfig())
    assert (check.level, "engram up" in check.advice) == ("warn", True)
    assert remove_dead_files()[1] > 500_000  # Fast DDS's default segment, or ours
    assert not any((FOLDER / name).exists() for name in own)
    assert all((FOLDER / name).exists() for name in others)
    kill(living)


def segments(child: subprocess.Popen) -> set[str]:
    """Return the names of the segments of Fast DDS that a process has mapped."""
    lines = Path(f"/proc/{child.pid}/maps").read_text().splitlines()
    return {line.rsplit("/", 1)[-1] for line in lines if f"{FOLDER}/fastdds_" in line and "port" not in line}
