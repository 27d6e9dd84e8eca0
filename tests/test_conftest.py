"""Test runs beside each other."""

from tests.conftest import free_domain


def test_no_two_runs_get_the_same_ros_domain():
    domains = [free_domain() for _ in range(3)]
    assert len(set(domains)) == 3
    assert all(1 <= int(domain) <= 100 for domain in domains)
