"""A graph of real processes for each test, on this test run's own domain."""

import os

import pytest

from tests.ros.processes import Graph


@pytest.fixture
def graph():
    made = Graph(int(os.environ["ROS_DOMAIN_ID"]))
    yield made
    codes = {name: code for name, code in made.close().items() if code not in (0, -9)}  # -9: killed on purpose
    logs = "\n".join(f"--- {p.executable}\n{p.output()[-3000:]}" for p in made.processes if p.executable in codes)
    assert not codes, f"{codes}\n{logs}"
