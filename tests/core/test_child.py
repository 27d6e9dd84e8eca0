"""Children end with their parent, also with one that has died already."""

import subprocess
import sys

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


def told(script: str) -> bytes:
    """Return what processes of ``script`` say until the last of them has ended."""
    return subprocess.run([sys.executable, "-c", BEGIN + script], capture_output=True, check=True, timeout=60).stdout


def test_a_child_that_comes_too_late_to_hear_of_its_parents_death_ends():
    assert told(LATE) == b""


def test_a_child_whose_parent_lives_goes_on():
    assert told(IN_TIME) == b"lives on\n"
