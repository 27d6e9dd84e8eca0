"""A node ends in order, however often it is told to."""

import os
import subprocess
import sys

import pytest

from tests.ros.processes import ROOT, python_path

TOLD_TWICE = """
import os, signal, time
from engram.nodes.base import run

def node():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(20)
    finally:  # what the first interrupted is still unwinding
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        print("in order")

run(node)
"""


@pytest.mark.ros
def test_a_second_interrupt_does_not_cut_through_what_the_first_began():
    environment = {**os.environ, "PYTHONPATH": python_path()}
    ended = subprocess.run(
        [sys.executable, "-c", TOLD_TWICE], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, "in order"), ended.stderr
