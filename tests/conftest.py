"""What holds for every test: offline, one thread, software rendering, and a ROS graph of one's own."""

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from tests.workers import (
    pytest_collection_modifyitems,
    pytest_handlecrashitem,
    pytest_runtest_logreport,
    pytest_testnodedown,
    pytest_xdist_make_scheduler,
)

__all__ = [
    "pytest_collection_modifyitems",
    "pytest_handlecrashitem",
    "pytest_runtest_logreport",
    "pytest_testnodedown",
    "pytest_xdist_make_scheduler",
]

_held = []  # lock files, open for as long as this process lives


def free_domain() -> str:
    """Return a ROS domain that no other test run of this machine uses.

    1..100: above 101 DDS ports run into Linux's ephemeral range. A number by chance alone met another run's at times.
    """
    for offset in range(100):
        domain = str(1 + (os.getpid() + offset) % 100)
        try:
            file = (Path(tempfile.gettempdir()) / f"engram-test-domain-{domain}.lock").open("w")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another run's, or another user's
            continue
        _held.append(file)
        return domain
    raise RuntimeError("100 test runs hold every ROS domain of this machine; set ROS_DOMAIN_ID")


_DEFAULTS = {
    "MUJOCO_GL": "egl",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "ROS_PYTHON_CHECK_FIELDS": "1",
    "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
}
for _name, _value in _DEFAULTS.items():
    os.environ.setdefault(_name, _value)


def pytest_configure(config: pytest.Config) -> None:
    """Take a ROS domain for a process that imports tests: with ``-n``, each worker and not the one that starts them."""
    imports_tests = config.option.collectonly or config.getoption("dist", "no") == "no"
    if imports_tests and "ROS_DOMAIN_ID" not in os.environ:
        os.environ["ROS_DOMAIN_ID"] = free_domain()
