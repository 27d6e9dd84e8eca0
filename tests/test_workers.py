"""How the tests are shared out among workers, by runs of small test files in two workers."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
INI = "[pytest]\nmarkers = ros\npythonpath = {root}\naddopts = -p no:dash -p no:zarr -p no:hypothesispytest\n"
NODES = """
import os
import pytest

DOMAIN = os.environ["ROS_DOMAIN_ID"]

@pytest.mark.ros
@pytest.mark.parametrize("number", range(4))
def test_it(number, pytestconfig):
    with open(pytestconfig.rootpath / "ran", "a") as file:
        print("{name}", os.environ["PYTEST_XDIST_WORKER"], DOMAIN, file=file)
"""
OTHERS = NODES.replace("@pytest.mark.ros", "")
CRASH = "import os\n\ndef test_before(): pass\n\ndef test_crash(): os._exit(1)\n\ndef test_after(): pass\n"


def run(folder: Path, *words: str) -> tuple[str, list[list[str]]]:
    """Run the test files of ``folder`` in two workers: the output, and the words that the tests wrote."""
    (folder / "pytest.ini").write_text(INI.format(root=ROOT))
    (folder / "conftest.py").write_text("from tests.conftest import *\nfrom tests.conftest import pytest_configure\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "ROS_DOMAIN"))}
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", *words, str(folder)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    ran = folder / "ran"
    return done.stdout + done.stderr, [line.split() for line in ran.read_text().splitlines()] if ran.exists() else []


def test_files_that_start_nodes_share_a_worker_and_other_files_use_both(tmp_path):
    for number in range(3):
        (tmp_path / f"test_nodes_{number}.py").write_text(NODES.format(name="nodes"))
        (tmp_path / f"test_others_{number}.py").write_text(OTHERS.format(name=f"others_{number}"))
    assert "24 tests collected" in run(tmp_path, "--collect-only")[0]
    said, ran = run(tmp_path)
    assert len(ran) == 24, said
    where = {name: {(worker, domain) for n, worker, domain in ran if n == name} for name, _, _ in ran}
    assert all(len(places) == 1 for places in where.values())  # a file is not divided either
    assert len({domain for _, _, domain in ran}) == len({worker for _, worker, _ in ran}) == 2


def test_a_test_that_ends_its_worker_runs_once_and_fails_and_the_others_go_on(tmp_path):
    (tmp_path / "test_crash.py").write_text(CRASH)
    (tmp_path / "test_others.py").write_text(OTHERS.format(name="others"))
    said, ran = run(tmp_path)
    assert re.search(r"^=+ 1 failed, 6 passed in .* =+$", said, re.MULTILINE), said
    assert said.count("crashed while running 'test_crash.py::test_crash'") >= 1
    assert len(ran) == 4


def test_workers_that_end_after_whole_files_leave_the_rest_to_others(tmp_path):
    """A worker whose done files were given away again starved, and with it the whole run (seen: 70 minutes)."""
    for number in range(12):
        body = OTHERS.format(name=f"others_{number}")
        (tmp_path / f"test_{number:02}.py").write_text(body if number % 4 != 3 else body + CRASH)
    (tmp_path / "test_fails.py").write_text("def test_fails(): assert False\n")
    said, ran = run(tmp_path)
    assert re.search(r"^=+ 4 failed, 54 passed in .* =+$", said, re.MULTILINE), said
    assert len(ran) == 48, said
    assert said.count("::test_crash ended its worker") == 3  # named when it happens, not only at the end
    assert "test_fails.py::test_fails failed (call" in said


def test_what_a_dead_worker_has_started_ends_with_it(tmp_path):
    (tmp_path / "test_crash.py").write_text(
        "import os, subprocess, pathlib\n\ndef test_crash():\n"
        "    child = subprocess.Popen(['sleep', '300'])\n"
        f"    pathlib.Path({str(tmp_path / 'child')!r}).write_text(str(child.pid))\n"
        "    os._exit(1)\n"
    )
    (tmp_path / "test_others.py").write_text(OTHERS.format(name="others"))
    said, _ = run(tmp_path)
    assert "1 failed, 4 passed" in said
    command = Path("/proc", (tmp_path / "child").read_text(), "cmdline")
    assert not command.exists() or b"sleep" not in command.read_bytes()
