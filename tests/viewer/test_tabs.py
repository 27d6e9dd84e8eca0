"""What the tabs say, as HTML: the numbers and names are there, and what users wrote is escaped."""

from __future__ import annotations

import doctest
import json

import pytest

from engram.core.errors import UnknownNameError
from engram.core.types import SceneEdge
from engram.validation.gate import Gate, GateConfig
from engram.viewer import encodable, gate_report, markup, scene_view, time_travel
from engram.viewer.banner import banner_html
from engram.viewer.conversation import answer_html
from engram.viewer.gate_report import TASKS_SHOWN, read_report
from engram.viewer.learning_tabs import gate_html, learner_html
from engram.viewer.markup import SHORT
from engram.viewer.nodes_tab import KEY_SHOWN, VALUES_SHOWN, nodes_html, values_html
from engram.viewer.policy_tab import policy_html
from engram.viewer.remembered import agents_html, details_html, remembered_html
from engram.viewer.time_travel import EVERYTHING, spans, stamp_at
from engram.viewer.values import Answer, Candidate, Graph, Judged, NodeState, Outcome, PolicyState, TaskFound
from tests.viewer.scenes import SECOND_NS, kitchen_graph, scene_node


@pytest.mark.parametrize("module", [encodable, gate_report, markup, scene_view, time_travel])
def test_examples_in_docstrings_hold(module) -> None:
    failed, tried = doctest.testmod(module)
    assert tried and not failed


def test_policy_tab_tells_what_drives_and_how_episodes_ended() -> None:
    ended = [Outcome(8, "put it <back>", "failed", 60, "mine, memory zeroed"), Outcome(7, "x", "succeeded", 41, "mine")]
    shown = policy_html(PolicyState("mine", "v1", "64 moments, 3 events, the oldest 7.2 s ago"), ended)
    assert "motions corrected by</b></td><td>nothing" in shown and "oracle" not in shown
    assert "1 of 2 that" in policy_html(PolicyState("mine", mistaken="1 of 2 that the simulator saw fail"), ())
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


def test_learning_tab_says_what_is_not_learnt_from_and_why() -> None:
    values = {
        "state": "active", "what practice found is not learnt": "the <weights> are others", "trains": "nothing: no key",
        "episodes not learnt from: a person helped": "3", "live pick_place": "7 of 9", "newest goals": "v1 0010",
        "update ms p50/p99": "3.10/4.20 (n=8)", "problems rollback": "1",
    }  # fmt: skip
    shown = learner_html(NodeState("learner_node", "ok", "active", values), ())
    for words in ("the &lt;weights&gt; are others", "nothing: no key", "<td>3</td>", "live pick place", "7 of 9"):
        assert words in shown
    for words in ("p50", "problems", "v1 0010"):  # these are at the Nodes tab, or drawn
        assert words not in shown


def test_gate_tab_says_what_the_gate_node_says_of_itself() -> None:
    values = {
        "judges": "nothing: no <card>",
        "practice": "waits",
        "robot": "turned by 10 degrees",
        "candidate": "v2: open",
    }
    shown = gate_html((), (), NodeState("gate_node", "warn", "late", values))
    for words in ("warn: late", "nothing: no &lt;card&gt;", "waits", "turned by 10", "v2: open"):
        assert words in shown
    assert "No gate of this robot runs" in gate_html(())


def test_gate_tab_tells_what_was_found_task_by_task() -> None:
    gate = Gate(["stack", "reach"], GateConfig(budget=4))
    for _ in range(4):
        gate.add("stack", True, False)
        gate.add("reach", False, False)
    found = read_report(json.dumps(gate.report()))
    counts = [(one.task, one.pairs, one.candidate, one.approved) for one in found]
    assert counts == [("stack", 4, 4, 0), ("reach", 4, 0, 0)]
    found = (*found, TaskFound("<push>", 9, 1, 7, "worse"))
    shown = gate_html((), [Judged("v2", "not_shown", "too few", 8, found)])
    assert "v2, task by task" in shown
    row = "<b>&lt;push&gt;</b></td><td>9</td><td>1</td><td>7</td><td>worse</td>"
    assert row in shown


@pytest.mark.parametrize("tasks", ["x", [1], [None], [{"task": 3}], [{"task": "a", "pairs": 1.5}], {"a": 1}])
def test_a_malformed_report_of_the_gate_shows_nothing(tasks) -> None:
    assert read_report(json.dumps({"tasks": tasks})) == ()
    assert "task by task" not in gate_html((), [Judged("v2", "reject", "w", 8, read_report("no JSON"))])


def test_a_report_of_the_gate_cannot_fill_the_page() -> None:
    one = {"task": "a", "pairs": 1, "candidate": 1, "approved": True}
    many = [one | {"approved": 0}] * 1000
    assert len(read_report(json.dumps({"tasks": [one, *many]}))) == TASKS_SHOWN - 1  # True is no count


def test_all_that_a_node_says_is_shown_and_no_more_than_fits() -> None:
    values = {"filter <near>": "12", "stopped": "x" * 9999, "k" * 999: "1"} | {str(n): "0" for n in range(1000)}
    shown = values_html(NodeState("safety_node", "ok", "active", values))
    assert "filter &lt;near&gt;</b></td><td>12" in shown
    assert f"<td>{'x' * SHORT} ...</td>" in shown
    assert f"<b>{'k' * KEY_SHOWN} ...</b>" in shown
    assert shown.count("<tr>") == VALUES_SHOWN
    assert f"and {1003 - VALUES_SHOWN} more" in shown
    assert values_html(None) == ""


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
