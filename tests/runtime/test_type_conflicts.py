"""Who uses which definition of a topic's type."""

from engram.runtime.type_conflicts import End, conflict

TYPE = "engram_interfaces/msg/TaskStatus"
OLD, NEW = "RIHS01_" + "0" * 52 + "a" * 12, "RIHS01_" + "0" * 52 + "b" * 12


def test_peers_of_two_releases_are_told_apart_by_the_end_of_the_digest():
    ends = [End(TYPE, OLD, "sim_node"), End(TYPE, NEW, "policy_node"), End(TYPE, OLD, "memory_node")]
    said = f"/task/status: {TYPE} {'a' * 12}: memory_node, sim_node; {TYPE} {'b' * 12}: policy_node"
    assert conflict("/task/status", ends) == said


def test_peers_that_agree_are_no_conflict():
    assert conflict("/task/status", [End(TYPE, OLD, "sim_node"), End(TYPE, OLD, "policy_node")]) == ""
    assert conflict("/task/status", []) == ""
