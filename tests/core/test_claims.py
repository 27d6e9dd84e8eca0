"""Whose messages count on a topic: one process, the one that was named or was first, while it is there."""

from engram.core.claims import REMEMBERED_S, UNKNOWN, Writer, WriterClaim


def gid(process: int, entity: int = 1) -> bytes:
    return bytes([process]) * 12 + entity.to_bytes(4, "big")


class Topic:
    """A topic whose writers the test adds and takes away, a claim on it, and a clock."""

    def __init__(self, *nodes: str):
        self.there: dict[bytes, str] = {}
        self.now, self.asked = 100.0, 0
        self.claim = WriterClaim(self.writers, nodes, lambda: self.now)

    def writers(self):
        self.asked += 1
        return [Writer(gid, node) for gid, node in self.there.items()]

    def says(self, process, entity=1):
        return self.claim.refusal(gid(process, entity))


def test_the_first_writer_claims_and_the_second_is_refused_by_its_name_until_the_first_is_gone():
    topic = Topic()
    topic.there = {gid(1): "/policy_node", gid(2): "/intruder"}
    assert topic.says(1) == ""
    assert topic.says(2) == "from /intruder, but /policy_node writes it"
    del topic.there[gid(1)]
    topic.now += 2 * REMEMBERED_S
    assert topic.says(2) == ""


def test_what_is_one_process_is_one_writer_whichever_of_its_publishers_writes():
    topic = Topic()
    topic.there = {gid(1, 1): "/policy_node", gid(1, 2): "/policy_node"}
    assert topic.says(1, 1) == topic.says(1, 2) == ""


def test_where_a_node_is_named_nobody_else_can_be_first():
    topic = Topic("/policy_node")
    topic.there = {gid(1): "/policy_node", gid(2): "/intruder"}
    assert topic.says(2) == "from /intruder, expected /policy_node"  # though the policy has not written yet
    assert topic.says(1) == ""


def test_of_two_that_bear_the_name_neither_begins_and_one_that_drives_goes_on():
    topic = Topic("/policy_node")
    topic.there = {gid(1): "/policy_node", gid(2): "/policy_node"}
    assert topic.says(1) == topic.says(2) == "2 processes call themselves /policy_node; it counts when one is left"
    del topic.there[gid(2)]
    topic.now += 2 * REMEMBERED_S
    assert topic.says(1) == ""
    topic.there[gid(2)] = "/policy_node"
    assert topic.says(1) == ""
    assert topic.says(2) == "from /policy_node, but /policy_node writes it"


def test_of_several_nodes_that_may_write_one_does_at_a_time_and_nobody_else_does():
    topic = Topic("/teleoperation", "/viewer_node")
    topic.there = {gid(1): "/teleoperation", gid(2): "/viewer_node", gid(3): "/intruder"}
    assert topic.says(3) == "from /intruder, expected /teleoperation or /viewer_node"
    assert topic.says(2) == ""  # the one that writes first, whichever is named first
    assert topic.says(1) == "from /teleoperation, but /viewer_node writes it"
    topic.there = {gid(1): "/teleoperation", gid(3): "/intruder"}  # the page has handed back
    topic.now += 2 * REMEMBERED_S
    assert topic.says(3) == "from /intruder, expected /teleoperation or /viewer_node"
    assert topic.says(1) == ""


def test_of_several_nodes_that_may_write_two_of_one_name_keep_no_other_from_it():
    topic = Topic("/teleoperation", "/viewer_node")
    topic.there = {gid(1): "/teleoperation", gid(2): "/teleoperation", gid(3): "/viewer_node"}
    assert topic.says(1) == topic.says(2) == "2 processes call themselves /teleoperation; it counts when one is left"
    assert topic.claim.may_succeed(gid(1))
    assert topic.says(3) == ""


def test_a_writer_whose_node_is_not_known_yet_may_come_again():
    topic = Topic("/policy_node")
    topic.there = {gid(1): ""}
    assert topic.says(1) == UNKNOWN
    topic.there = {gid(1): "/policy_node"}
    assert topic.says(1) == ""
    unnamed = Topic()
    assert unnamed.says(1) == ""  # sooner than the graph knows of it


def test_what_a_writer_might_have_become_is_forgotten_with_it():
    topic = Topic("/teleoperation", "/viewer_node")
    topic.there = {gid(1): "/teleoperation", gid(2): "/viewer_node"}
    assert topic.says(1) == "" and topic.says(2)
    assert topic.claim.may_succeed(gid(2))
    topic.there = {}
    topic.now += 2 * REMEMBERED_S
    assert topic.says(2) == UNKNOWN
    assert not topic.claim.may_succeed(gid(2))


def test_a_flood_asks_the_graph_twice_a_second():
    topic = Topic()
    topic.there = {gid(1): "/policy_node", gid(2): "/intruder"}
    topic.says(1)
    for _ in range(1000):
        assert topic.says(2)
        topic.now += 0.001
    assert topic.asked <= 4
    before = topic.asked
    for _ in range(1000):
        assert topic.says(1) == ""
    assert topic.asked == before  # the one that drives costs nothing


def test_a_successor_waits_for_its_predecessor_and_an_intruder_for_nothing():
    """A node that was killed is there for DDS until its lease ends; what its successor latches must not be lost."""
    for topic in (Topic("/safety_node"), Topic()):
        topic.there = {gid(1): "/safety_node"}
        assert topic.says(1) == ""
        topic.there |= {gid(2): "/safety_node", gid(3): "/intruder"}
        assert topic.says(2) and topic.says(3)
        assert topic.claim.may_succeed(gid(2))
        assert not topic.claim.may_succeed(gid(3))
        del topic.there[gid(1)]
        topic.now += 2 * REMEMBERED_S
        assert topic.says(2) == ""
        assert topic.says(3) == "from /intruder, but /safety_node writes it"


def test_a_node_may_be_meant_in_any_namespace_and_two_of_one_full_name_are_still_told_from_nobody():
    topic = Topic("/*/policy_node", "/pad")
    topic.there = {gid(1): "/r1/policy_node", gid(2): "/r1/policy_node", gid(3): "/a/r2/policy_node", gid(4): "/r1/pad"}
    assert topic.says(1) == topic.says(2) == "2 processes call themselves /r1/policy_node; it counts when one is left"
    assert topic.says(4) == "from /r1/pad, expected /*/policy_node or /pad"
    assert topic.claim.may_succeed(gid(1)) and not topic.claim.may_succeed(gid(4))
    assert topic.says(3) == ""
    assert topic.says(1) == "2 processes call themselves /r1/policy_node; it counts when one is left"  # remembered
    topic.now += 2 * REMEMBERED_S
    assert topic.says(1) == "from /r1/policy_node, but /a/r2/policy_node writes it"
