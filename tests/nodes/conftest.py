"""Fixtures of the tests with real nodes."""

from collections.abc import Iterator

import pytest

from tests.nodes.participants import Graph


@pytest.fixture
def graph() -> Iterator[Graph]:
    """Yield a place for a node under test and its neighbours, cleared away afterwards."""
    made = Graph()
    yield made
    made.close()
