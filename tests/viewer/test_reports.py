"""The newest report of every node counts, and silence is shown."""

from __future__ import annotations

from engram.runtime.policy_notes import CORRECTED_BY, JUDGED, MISTAKEN, POLICIES, POLICY_DRIVES, REMEMBERED
from engram.viewer.newest import Newest
from engram.viewer.reports import MOST_NODES, Reports
from engram.viewer.values import Judged, NodeState, Outcome, PolicyState


def test_a_silent_node_becomes_stale_and_keeps_its_last_words() -> None:
    reports = Reports(stale_after_s=5.0)
    reports.take(NodeState("sim_node", "ok", "idle"), 10.0)
    reports.take(NodeState("sim_node", "ok", "active"), 11.0)
    assert reports.states(16.0) == [NodeState("sim_node", "ok", "active")]
    (late,) = reports.states(16.1)
    assert (late.level, late.message) == ("stale", "silent for 5 s; before: active")


def test_what_the_policy_node_says_of_the_policy() -> None:
    reports = Reports(5.0)
    assert reports.policy() == PolicyState()
    values = {POLICY_DRIVES: "base", "policy version": "v1", REMEMBERED: "3 events", POLICIES: "base, engram"}
    values |= {CORRECTED_BY: "turn by 10 degrees", JUDGED: "memory: not reached", MISTAKEN: "1 of 2"}
    reports.take(NodeState("policy_node", "ok", "active", values), 0.0)
    assert reports.policy() == PolicyState("base", "v1", "3 events", ("base", "engram"), "1 of 2", "turn by 10 degrees")
    assert reports.judged() == "memory: not reached"


def test_a_learner_that_never_reported_is_no_learner() -> None:
    reports = Reports(5.0)
    assert reports.of("learner_node", 0.0) is None
    reports.take(NodeState("learner_node", "ok", "active"), 0.0)
    learner = reports.of("learner_node", 60.0)
    assert learner is not None and learner.level == "stale"


def test_what_was_read_is_not_changed_by_what_comes_meanwhile() -> None:
    """Another thread draws it."""
    reports, newest = Reports(5.0), Newest()
    told = Outcome(1, "stack", "succeeded", 40, "base"), Judged("v1", "open", "", 1)
    reports.take(NodeState("sim_node", "ok", "idle"), 0.0)
    newest.ended(told[0])
    newest.verdict(told[1])
    read = iter(reports._newest.items()), iter(newest.outcomes), iter(newest.judged)
    reports.take(NodeState("learner_node", "ok", "active"), 0.0)
    reports.take(NodeState("sim_node", "ok", "active"), 0.0)
    newest.ended(Outcome(2, "stack", "failed", 40, "base"))
    newest.verdict(Judged("v1", "promote", "", 2))
    reported = ("sim_node", (0.0, NodeState("sim_node", "ok", "idle")))
    assert [list(one) for one in read] == [[reported], [told[0]], [told[1]]]  # type: ignore[call-overload]
    assert [o.episode for o in newest.outcomes] == [2, 1] and [j.decision for j in newest.judged] == ["promote"]


def test_names_that_nobody_has_heard_of_do_not_fill_the_page() -> None:
    reports = Reports(5.0)
    for number in range(1000):
        reports.take(NodeState(f"ghost_{number}", "ok", "active"), float(number))
        reports.take(NodeState("sim_node", "ok", "active"), float(number))
    names = [state.name for state in reports.states(1000.0)]
    assert len(names) == MOST_NODES and "sim_node" in names
