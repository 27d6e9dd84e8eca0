"""A graph of real processes for each test, on this test run's own domain."""

import os

import pytest

from tests.ros.processes import Graph


@pytest.fixture
def graph():
    made = Graph(int(os.environ["ROS_DOMAIN_ID"]))
    yield made
    codes = made.close()
    assert set(codes.values()) <= {0, -9}, codes  # -9: a test killed it on purpose
