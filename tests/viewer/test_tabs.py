"""What the tabs say, as HTML: the numbers and names are there, and what users wrote is escaped."""

from __future__ import annotations

import doctest

import pytest

from engram.core.errors import UnknownNameError
from engram.core.types import SceneEdge
from engram.viewer import markup, time_travel
from engram.viewer.banner import banner_html
from engram.viewer.conversation import answer_html
from engram.viewer.learning_tabs import gate_html, learner_html
from engram.viewer.nodes_tab import nodes_html
from engram.viewer.policy_tab import policy_html
from engram.viewer.remembered import agents_html, details_html, remembered_html
from engram.viewer.time_travel import EVERYTHING, spans, stamp_at
from engram.viewer.values import Answer, Candidate, Graph, Judged, NodeState, Outcome, PolicyState
from tests.viewer.scenes import SECOND_NS, kitchen_graph, scene_node


@pytest.mark.parametrize("module", [markup, time_travel])
def test_examples_in_docstrings_hold(module) -> None:
    failed, tried = doctest.testmod(module)
    assert tried and not failed


def test_policy_tab_tells_what_drives_and_how_episodes_ended() -> None:
    ended = [Outcome(8, "put it <back>", "failed", 60, "mine, memory zeroed"), Outcome(7, "x", "succeeded", 41, "mine")]
    shown = policy_html(PolicyState("mine", "v1", "64 moments, 3 events, the oldest 7.2 s ago"), ended)
    for words in ("mine, memory zeroed", "put it &lt;back&gt;", "64 moments, 3 events", "2 episodes: 1 succeeded"):
        assert words in shown
    assert shown.index(">8<") < shown.index(">7<")  # newest first
    assert "not reported" in policy_html(PolicyState(), ())


def test_objects_believed_gone_are_listed_apart_with_when_they_were_last_seen() -> None:
    shown = remembered_html(kitchen_graph(stamp_ns=128 * SECOND_NS))
    assert shown.index("red cube") < shown.index("Believed gone") < shown.index("cup")
    gone = shown[shown.index("Believed gone") : shown.index("Relations")]
    assert "2 min ago" in gone and "box" not in gone  # seen at 8 s, now it is 128 s


def test_relations_are_listed_in_words_and_near_comes_last() -> None:
    shown = remembered_html(kitchen_graph())
    relations = shown[shown.index("Relations") : shown.index("Rooms and places")]
    rows = ["<b>box</b></td><td>on</td><td>table", "<b>red cube</b></td><td>held by</td><td>robot_b",
            "<b>red cube</b></td><td>near</td><td>box"]  # fmt: skip
    places = [relations.index(row) for row in rows]
    assert places == sorted(places)
    assert "1 things on or in it" in shown


def test_robots_are_told_with_what_they_are_and_hold() -> None:
    graph = kitchen_graph()
    shown = agents_html(graph)
    for words in ("robot_b", "1.50 0.10 m", "holds the red cube", "is an arm: fixed base", "payload of 2 kg"):
        assert words in shown
    stranger = scene_node("agent/2", "cart <2>", 0.0, layer="agent")
    alone = agents_html(Graph({stranger.id: stranger}))
    assert "cart &lt;2&gt;" in alone and "has not introduced itself" in alone and "holds nothing known" in alone
    assert agents_html(Graph()) == ""


def test_the_picked_object_is_described() -> None:
    graph = kitchen_graph()
    shown = details_html(graph.nodes["object/1"], graph)
    assert "0.40 0.10 0.02" in shown and "3 times" in shown and "red cube held by robot_b" in shown


def test_an_unknown_node_of_a_relation_is_shown_by_its_id() -> None:
    graph = Graph({"object/1": scene_node("object/1", "cube", 0.4)}, (SceneEdge("object/1", "place/9", "on"),))
    assert "<b>cube</b></td><td>on</td><td>place/9" in remembered_html(graph)


def test_an_answer_shows_confidence_age_and_evidence() -> None:
    shown = answer_html(Answer("q", "It is <there>.", 0.934, 160.0, ("Look at the table.", "graph: cube visible", "")))
    assert "It is &lt;there&gt;." in shown
    assert "confidence 93 %, evidence 3 min old" in shown
    assert shown.count("<li>") == 2  # empty details are left out
    assert "confidence" not in answer_html(Answer("q", "Nothing is known."))


def test_nodes_in_trouble_come_first() -> None:
    states = [NodeState("a", "ok", "active"), NodeState("z", "error", "stopped <now>"), NodeState("m", "warn", "late")]
    shown = nodes_html(states)
    assert shown.index("<b>z</b>") < shown.index("<b>m</b>") < shown.index("<b>a</b>")
    assert "stopped &lt;now&gt;" in shown
    with pytest.raises(UnknownNameError, match=r"'fine'.*ok"):
        NodeState("a", "fine", "")


def test_learning_tab_shows_counters_and_candidates_or_that_no_learner_runs() -> None:
    learner = NodeState("learner_node", "ok", "active", {"learner updates": "40", "stored transitions": "512"})
    shown = learner_html(learner, [Candidate("bc-40", "base", "candidate", {"loss": 0.0341234, "updates": 40})])
    for words in ("<b>updates</b></td><td>40", "512", "bc-40", "base", "loss 0.0341, updates 40"):
        assert words in shown
    assert "learner:=true" in learner_html(None, ())


def test_gate_tab_says_what_counts_what_was_found_and_why_weights_drive() -> None:
    assert "The gate tries a candidate out" in gate_html(())
    seen = [Judged("v2", "not_shown", "newest", 90), Judged("v2", "open", "older", 40), Judged("v1", "reject", "w", 8)]
    shown = gate_html((), seen)
    assert "not shown" in shown
    assert "newest" in shown
    assert "older" not in shown
    assert shown.index("v2") < shown.index("v1")
    proven = Candidate("v2", "v1", "approved", {"approved_because": "the gate: not worse by 0.1"})
    assert "the gate: not worse by 0.1" in gate_html((proven,))
    two = [Candidate("a", "", "candidate"), Candidate("b", "a", "candidate"), Candidate("c", "", "rolled_back")]
    assert "2 candidate, 1 rolled back" in gate_html(two)


def test_the_banner_puts_a_stop_before_the_past() -> None:
    assert banner_html("", "")[0] == ""
    assert "PAST" in banner_html("", "12:00:01, 8 s ago")[0]
    both, _ = banner_html("safety/stop was called", "12:00:01")
    assert "STOPPED (safety/stop was called)" in both and "Release stop" in both and "PAST" not in both


def test_the_slider_ends_at_now_and_never_asks_for_zero() -> None:
    now_ns = 1000 * SECOND_NS
    assert stamp_at(0.0, now_ns) is None
    assert stamp_at(-600.0, now_ns) == 400 * SECOND_NS
    assert stamp_at(-2000.0, now_ns) == 1  # 0 means now to memory/get_graph


def test_only_spans_that_the_memory_covers_are_offered() -> None:
    assert spans(30.0) == (EVERYTHING,)
    assert spans(700.0) == ("last minute", "last 10 minutes", EVERYTHING)
