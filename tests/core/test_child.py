"""Children end with their parent, also with one that has died already."""

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import time

import pytest

from engram.core.child import run_apart, run_spawned
from engram.core.errors import EngramError, InvalidInputError

BEGIN = """
import os, time
from engram.core.child import end_with_parent

parent = os.getpid()
"""
LATE = """
if os.fork() == 0:
    while os.getppid() == parent:
        time.sleep(0.01)
    end_with_parent(parent)
    print("lives on", flush=True)
os._exit(0)
"""
IN_TIME = """
if os.fork() == 0:
    end_with_parent(parent)
    print("lives on", flush=True)
    os._exit(0)
os.wait()
"""


POOL = """
import signal
from engram.core.child import run_spawned

def tell(seconds):
    print(os.getpid(), flush=True)
    time.sleep(seconds)

if __name__ == "__main__":
    for _ in run_spawned(tell, [0, 60], 1):
        os.kill(parent, signal.SIGTERM)
        time.sleep(60)
"""


QUIET = """
import logging
from engram.core.child import run_spawned

def level(_):
    return logging.getLogger("lerobot.utils.import_utils").getEffectiveLevel()

if __name__ == "__main__":
    print(*run_spawned(level, [0], 1), flush=True)
"""


def told(script: str) -> bytes:
    """Return what processes of ``script`` say until the last of them has ended."""
    return subprocess.run([sys.executable, "-c", BEGIN + script], capture_output=True, check=True, timeout=60).stdout


def test_a_child_that_comes_too_late_to_hear_of_its_parents_death_ends():
    assert told(LATE) == b""


def test_a_child_whose_parent_lives_goes_on():
    assert told(IN_TIME) == b"lives on\n"


def test_a_pool_ends_with_a_parent_that_is_told_to_end(tmp_path):
    script = tmp_path / "pool.py"  # a fresh process imports it by its path
    script.write_text(BEGIN + POOL)
    began = time.monotonic()
    ended = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, timeout=50)
    assert ended.returncode == -signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        for _ in range(200):
            os.kill(int(ended.stdout.split()[0]), 0)
            time.sleep(0.05)
    assert time.monotonic() - began < 45  # not when its work is done


def test_a_pools_processes_do_not_print_lerobots_page_about_video_decoders(tmp_path):
    script = tmp_path / "quiet.py"
    script.write_text(QUIET)
    said = subprocess.run([sys.executable, script], capture_output=True, check=True, timeout=60).stdout
    assert int(said) == logging.ERROR


def square(number):
    return number**2


def die(number):
    os.kill(os.getpid(), signal.SIGKILL)


def test_results_come_as_they_are_done():
    assert sorted(run_spawned(square, range(5), 2)) == [0, 1, 4, 9, 16]


def test_a_process_that_is_killed_ends_the_work_with_an_error():
    with pytest.raises(EngramError, match="a worker process died"):
        list(run_spawned(die, range(3), 2))


def test_what_an_item_raises_ends_the_work_and_is_raised():
    with pytest.raises(TypeError):
        list(run_spawned(square, ["a", *[2] * 1000], 1))


def fail(why):
    raise InvalidInputError(why)


def test_work_apart_returns_raises_and_ends_when_it_is_told_to():
    assert run_apart(abs, -3) == 3
    with pytest.raises(InvalidInputError, match="so it is"):
        run_apart(fail, "so it is")
    with pytest.raises(EngramError, match="a worker process died"):
        run_apart(die, 0)
    began = time.monotonic()
    with pytest.raises(InvalidInputError, match="enough"):
        run_apart(time.sleep, 60, check=lambda: fail("enough"))
    assert time.monotonic() - began < 20


def fill_the_disk(_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", "/data/part")


def lambda_of(_: object) -> object:
    return lambda: None


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (fill_the_disk, r"a worker process failed: OSError: .*No space left on device: '/data/part'"),
        (json.loads, r"a worker process failed: JSONDecodeError: Expecting value"),
        (lambda_of, r"a worker process failed: .*lambda"),
    ],
)
def test_what_goes_wrong_apart_is_told_by_its_text(function, told):
    with pytest.raises(EngramError, match=told):
        run_apart(function, "nothing")


def test_work_apart_is_nicer():
    assert run_apart(os.nice, 0, niceness=3) == os.nice(0) + 3
