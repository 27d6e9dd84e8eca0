"""A node ends in order, however often it is told to."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ros.processes import ROOT, python_path

TOLD_TWICE = """
import os, signal, time
from engram.nodes.process import run

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


def segments(pid: int) -> set[Path]:
    """Return the shared-memory segments of Fast DDS that a process uses."""
    found = re.findall(r"/dev/shm/fastdds_[0-9a-f]{16}$", Path(f"/proc/{pid}/maps").read_text(), re.MULTILINE)
    return {Path(path) for path in found}


@pytest.mark.ros
@pytest.mark.timeout(200)
@pytest.mark.parametrize("active", [True, False])
def test_a_node_that_ends_in_order_leaves_nothing_in_shared_memory(graph, active):
    before = set(Path("/dev/shm").iterdir())  # this test's own among them, which the node reads
    node = graph.start("safety_node", autostart=active)
    graph.wait(lambda: graph.value("safety_node", "state") == ("active" if active else "unconfigured"), 100, "state")
    used = segments(node.child.pid) - before
    assert used
    assert node.end() == 0
    assert not [path for path in used if path.exists()]


@pytest.mark.ros
def test_a_second_interrupt_does_not_cut_through_what_the_first_began():
    environment = {**os.environ, "PYTHONPATH": python_path()}
    ended = subprocess.run(
        [sys.executable, "-c", TOLD_TWICE], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, "in order"), ended.stderr
