"""Examples that are nodes run in real processes, as those of tests/ros do."""

from tests.ros.conftest import graph

__all__ = ["graph"]
