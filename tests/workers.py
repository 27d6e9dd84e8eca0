"""Shares the tests out among pytest-xdist's workers (``pytest -n 2``, as ``make test`` runs them).

A file stays on one worker: what its module fixtures made is made once. All files that start ROS nodes or a browser stay
on the same worker, one test after the other: they start several processes each, and what they say of time and of
``/dev/shm`` is not disturbed by other nodes. They come first, then the files with slow tests, so that no worker is left
with a long file at the end.
"""

from __future__ import annotations

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
        """Give away what a dead worker had left, without the test that ended it: xdist would run that again."""
        units = self.assigned_work[node].values()
        left = [(unit, test) for unit in units for test, done in unit.items() if not done]
        if not left:
            return super().remove_node(node)
        unit, deadly = left[0]
        unit[deadly] = True
        super().remove_node(node)
        return deadly


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
