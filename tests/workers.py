"""Shares the tests out among pytest-xdist's workers (``pytest -n 2``, as ``make test`` runs them).

A file stays on one worker: what its module fixtures made is made once. All files that start ROS nodes or a browser stay
on the same worker, one test after the other: they start several processes each, and what they say of time and of
``/dev/shm`` is not disturbed by other nodes. They come first, then the files with slow tests, so that no worker is left
with a long file at the end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling, Scheduling
from xdist.workermanage import WorkerController

NODES = "files that start nodes"


@cache
def says(file: Path, *marks: str) -> bool:
    """Whether a test file sets one of ``marks``; by its text, because the process that shares out collects no tests."""
    text = file.read_text()
    return any(f"pytest.mark.{mark}" in text for mark in marks)


class NodesOnOneWorker(LoadFileScheduling):
    """Files are the units of work; those that start nodes or a browser are one unit."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return NODES if says(self.config.rootpath / file, "ros", "browser") else file

    def remove_node(self, node: WorkerController) -> str | None:
        """Give away what a dead worker had left, without the test that ended it: xdist would run that again.

        Units that are done are forgotten: given to another worker they would send it no test, and xdist gives a worker
        its next unit only when a test of it ends. The run would wait for ever.
        """
        work = self.assigned_work[node]
        deadly = next((test for unit in work.values() for test, done in unit.items() if not done), None)
        for name, unit in list(work.items()):
            if deadly in unit:
                unit[deadly] = True
            if all(unit.values()):
                del work[name]
        super().remove_node(node)
        return deadly

    def _reschedule(self, node: WorkerController) -> None:
        """Give a worker units until it has more than two tests: it runs its last test only when it knows the next."""
        if node not in self.registered_collections:  # it replaces a dead one and still collects
            return
        while self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) <= 2:
            self._assign_work_unit(node)
        super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Send a worker its next unit; one that died just now gets it as its own, and leaves it to the others."""
        with contextlib.suppress(OSError):
            super()._assign_work_unit(node)


def pytest_testnodedown(node: WorkerController, error: object | None) -> None:
    """Kill what a dead worker has started: its ROS nodes would disturb the tests of its successor."""
    if error is None:
        return
    its = f"PYTEST_XDIST_WORKER={node.gateway.id}".encode()
    run = f"PYTEST_XDIST_TESTRUNUID={node.workerinput['testrunuid']}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if {its, run} <= set((process / "environ").read_bytes().split(b"\0")):
                os.kill(int(process.name), signal.SIGKILL)


def pytest_handlecrashitem(crashitem: str) -> None:
    """Name a test that ended its worker, at once: a run that is ended from outside prints no summary."""
    print(f"\n{crashitem} ended its worker", file=sys.__stderr__, flush=True)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name a test that failed, at once, in the process that shares out the tests."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\n{report.nodeid} failed ({report.when}, {report.duration:.0f} s)", file=sys.__stderr__, flush=True)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Share out as this file says, unless the command line asks for another way with ``--dist``."""
    if config.option.dist != "load":
        return None
    config.option.loadscopereorder = False  # the order of the collection, which the next function makes
    return NodesOnOneWorker(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest units of work first on a worker; a run of one process keeps the order of the files."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: (not says(item.path, "ros", "browser"), not says(item.path, "slow")))
