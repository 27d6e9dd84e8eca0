"""A process that is marked as the one of a node, for tests that end it."""

import subprocess
import sys

import pytest

HOLDER = """
import time
from engram.runtime.process_mark import ProcessMark
mark = ProcessMark('/r2/memory_node', 54)
print("marked", flush=True)
time.sleep(600)
"""


@pytest.fixture
def marks(tmp_path, monkeypatch):
    """Marks of processes are kept in a folder of the test."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def holder(marks):
    """A process that is marked as the one of /r2/memory_node in domain 54."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "marked\n"
    yield process
    process.kill()
    process.wait()
