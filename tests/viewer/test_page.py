"""The page on a real viser server: what is drawn in 3D, and what a visitor's wishes call."""

from __future__ import annotations

import html
import os
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from engram.core.ports import PortInUseError, free_port
from engram.core.types import SceneEdge
from engram.runtime.teleop import Seen
from engram.viewer.by_hand import HAND_BACK, MOVES, SPEED, TAKE_OVER, TURNS
from engram.viewer.nodes_tab import NO_NODE
from engram.viewer.page import ViewerPage
from engram.viewer.remembered import RELATIONS_SHOWN
from engram.viewer.scene_view import ABSENT_OPACITY, box_edges, caption
from engram.viewer.values import (
    MOST_RELATIONS,
    MOST_SHOWN,
    Answer,
    Graph,
    NodeState,
    PageActions,
    PolicyState,
)
from tests.viewer.scenes import SECOND_NS, joints, kitchen_graph, scene_node


@pytest.fixture
def asked() -> list[tuple[str, object]]:
    return []


@pytest.fixture
def page(asked: list[tuple[str, object]]) -> Iterator[ViewerPage]:
    actions = PageActions(
        instruct=lambda words: asked.append(("instruct", words)),
        ask=lambda words: asked.append(("ask", words)),
        tell=lambda how: asked.append(("tell", how)),
        stop=lambda: asked.append(("stop", None)),
        release=lambda: asked.append(("release", None)),
        show_past=lambda at_ns: asked.append(("past", at_ns)),
        choose_policy=lambda name: asked.append(("policy", name)),
    )
    made = ViewerPage(free_port(), actions)
    yield made
    made.close()


def drawn(page: ViewerPage) -> dict[str, object]:
    return {handle.name: handle for _, handles in page._scene._drawn.values() for handle in handles}


def test_a_port_in_use_is_an_error_and_not_another_port(page: ViewerPage) -> None:
    port = page._gate._port
    with pytest.raises(PortInUseError, match=rf"port {port} is in use by .*pid {os.getpid()}"):
        ViewerPage(port, page._actions)


def labels(page: ViewerPage) -> set[str]:
    return {getattr(element, "label", "") for element in page.server.gui._gui_input_handle_from_uuid.values()}


def test_a_page_without_a_robot_has_no_stop_and_shows_nothing_of_one(page: ViewerPage) -> None:
    alone = ViewerPage(free_port(), page._actions, robot=None)
    try:
        drives = {"STOP", "Release stop", "Do it", TAKE_OVER}
        assert drives < labels(page)
        assert "Ask" in labels(alone) and not drives & labels(alone)
        names = alone._scene._scene._handle_from_node_name
        assert not [name for name in names if name.startswith(("/robot", "/table"))]
        alone.show_stopped("safety/stop was called")
        alone.show_goal("goal")
        alone.show_policy(PolicyState("base", "v1"), ())
        alone.show_learning(None, None, ())
        alone.show_examples(("open the drawer",))
        alone.reply("done")
        alone.reply_policy("done")
        assert not alone.by_hand(Seen(np.zeros(8), 0.8)).drives and "STOPPED" not in alone._banner._html.content
        alone.show_graph(kitchen_graph())
        assert "/memory/object/1" in drawn(alone)
    finally:
        alone.close()


def test_the_edges_of_a_box_are_as_long_as_its_sides() -> None:
    edges = box_edges(np.array([1.0, 2.0, 4.0]))
    lengths = np.linalg.norm(edges[:, 1] - edges[:, 0], axis=1)
    assert sorted(lengths.tolist()) == [1.0] * 4 + [2.0] * 4 + [4.0] * 4
    assert np.abs(edges).max(axis=(0, 1)).tolist() == [0.5, 1.0, 2.0]


def test_absent_objects_are_drawn_faint_with_when_they_were_last_seen(page: ViewerPage) -> None:
    graph = kitchen_graph(stamp_ns=20 * SECOND_NS)
    page.show_graph(graph)
    shown = drawn(page)
    assert shown["/memory/object/2"].opacity == ABSENT_OPACITY < shown["/memory/object/1"].opacity
    assert caption(graph.nodes["object/2"], graph.stamp_ns) == "cup: believed gone, last seen 12 s ago"
    assert caption(graph.nodes["object/1"], graph.stamp_ns) == "red cube"


def test_rooms_relations_and_robots_are_drawn_and_go_with_their_nodes(page: ViewerPage) -> None:
    graph = kitchen_graph()
    page.show_graph(graph)
    shown = drawn(page)
    assert {"/rooms/room/1", "/rooms/place/1", "/agents/agent/1", "/relations"} <= shown.keys()
    assert np.ptp(shown["/rooms/room/1"].points, axis=(0, 1)).tolist() == [2.0, 3.0, 2.5]
    # near and held_by join objects and a robot; what the box stands on is a place and only listed
    ends = shown["/relations"].points[:, :, 0]
    assert np.allclose(sorted(map(sorted, ends.tolist())), [[0.4, 0.6], [0.4, 1.5]])
    page.show_graph(replace(graph, nodes={"object/1": graph.nodes["object/1"]}, edges=()))
    assert set(drawn(page)) == {"/memory/object/1", "/memory_labels/object/1"}


@pytest.mark.filterwarnings("ignore:Attempted to remove already removed node")
def test_a_graph_that_could_not_be_drawn_is_drawn_by_the_next_call(page: ViewerPage, monkeypatch) -> None:
    """The page's library lets a removal that failed half-way be tried again: the node of the page relies on that."""
    graph = kitchen_graph()
    page.show_graph(graph)
    third = list(drawn(page).values())[-3]
    with monkeypatch.context() as broken:
        broken.setattr(third._impl.api, "_queue_scene_message", lambda message: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            page.show_graph(replace(graph, nodes={}, edges=()))
    page.show_graph(replace(graph, nodes={"object/1": graph.nodes["object/1"]}, edges=()))
    left = {name for name in page._scene._scene._handle_from_node_name if not name.startswith("/robot")}
    kinds = ("object/", "room/", "place/", "agent/", "relations")
    assert set(drawn(page)) == {name for name in left if any(kind in name for kind in kinds)}
    assert set(drawn(page)) == {"/memory/object/1", "/memory_labels/object/1"}


def test_what_looks_the_same_is_not_drawn_again(page: ViewerPage) -> None:
    graph = kitchen_graph()
    page.show_graph(graph)
    before = drawn(page)
    moved = scene_node("object/1", "red cube", 0.45)
    page.show_graph(replace(graph, nodes={**graph.nodes, moved.id: moved}))
    after = drawn(page)
    assert before.keys() == after.keys()
    anew = {name for name in after if after[name] is not before[name]}
    assert anew == {"/memory/object/1", "/memory_labels/object/1", "/relations"}
    assert after["/memory/object/1"].position[0] == pytest.approx(0.45)


@pytest.mark.filterwarnings("ignore:Attempted to remove already removed node")
def test_what_was_half_taken_away_is_drawn_again_though_it_looks_the_same(page: ViewerPage, monkeypatch) -> None:
    graph = kitchen_graph()
    page.show_graph(graph)
    first = next(iter(drawn(page)))
    with monkeypatch.context() as broken:
        broken.setattr(type(drawn(page)["/memory_labels/object/1"]), "remove", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            page.show_graph(replace(graph, nodes={}, edges=()))
    page.show_graph(graph)
    assert first in page._scene._scene._handle_from_node_name


def test_of_a_scene_without_end_what_was_seen_last_is_shown_and_the_page_says_how_many_are_not(
    page: ViewerPage,
) -> None:
    """Drawing 12,000 objects took 40 s, in which the page showed and passed on nothing else."""
    many = {}
    for number in range(2 * MOST_SHOWN):
        for layer in ("object", "room", "agent"):
            node = scene_node(f"{layer}/{number}", f"thing {number:04}", 0.01 * number, layer=layer)
            many[node.id] = replace(node, last_seen_ns=number * SECOND_NS)
    edges = [SceneEdge(f"object/{2 * MOST_SHOWN - 1}", f"object/{number}", "near") for number in range(2 * MOST_SHOWN)]
    page.show_graph(Graph(many, (*edges * 20, SceneEdge("object/599", "agent/599", "held_by")), 2000 * SECOND_NS))
    boxes = {name for name in drawn(page) if name.startswith("/memory/")}
    assert boxes == {f"/memory/object/{number}" for number in range(MOST_SHOWN, 2 * MOST_SHOWN)}
    assert len(drawn(page)) == 6 * MOST_SHOWN + 1
    assert len(drawn(page)["/relations"].points) == MOST_RELATIONS
    listed = page._memory._list.content
    assert f"{3 * MOST_SHOWN} more are not shown" in listed
    assert f"and {len(edges) * 20 + 1 - RELATIONS_SHOWN} more" in listed and "held by" in listed
    assert "thing 0000" not in listed and "thing 0599" in listed

    page._pick("object/0")  # an answer may be about one that is not drawn
    assert page._scene._highlight is not None and "Picked: thing 0000" in page._memory._picked.content
    page._pick("object/599")
    relations = page._memory._picked.content
    assert relations.count(" near ") == RELATIONS_SHOWN and "thing 0059 ..." in relations


def test_of_many_objects_those_that_are_believed_absent_are_left_out_first() -> None:
    nodes = [scene_node(f"object/{n}", "cup", 0.4, state="absent" if n % 2 else "visible") for n in range(400)]
    shown = Graph({node.id: node for node in nodes}).shown()
    assert len(shown.nodes) == MOST_SHOWN and shown.left_out == 100
    assert sum(node.state == "visible" for node in shown.nodes.values()) == 200


class Unheard:
    """A button that the page's library fails to change."""

    def __setattr__(self, name: str, value: object) -> None:
        raise RuntimeError("deque mutated during iteration")


def test_a_stop_that_could_not_be_shown_is_shown_by_the_next_call(page: ViewerPage) -> None:
    button, page._safety._release = page._safety._release, Unheard()
    with pytest.raises(RuntimeError):
        page.show_stopped("safety/stop was called")
    page._safety._release = button
    page.show_stopped("safety/stop was called")
    assert button.color == "green" and "STOPPED (safety/stop was called)" in html.unescape(page._banner._html.content)


def test_an_instruction_is_not_sent_while_the_robot_is_stopped(page: ViewerPage, asked: list) -> None:
    page._drive._instruction.value = "open the drawer"
    page.show_stopped("safety/stop was called")
    page._drive._send()
    assert asked == []
    log = page._drive._log.content
    assert "was not sent: the robot is stopped (safety/stop was called)" in log and "Release stop" in log
    page.show_stopped("")
    page._drive._send()
    assert asked == [("instruct", "open the drawer")]


def test_longer_words_than_people_say_are_not_sent(page: ViewerPage, asked: list) -> None:
    page._drive._instruction.value = "go " * 400
    page._drive._send()
    assert '" was not sent: 1199 characters, at most 1000 are taken.' in html.unescape(page._drive._log.content)
    talk = page._memory.conversation
    talk._question.value = "where is the " + "x" * 1000
    talk._send()
    (exchange,) = talk._exchanges
    assert "Not asked: 1013 characters, at most 1000 are taken." in exchange.answer.content
    assert len(exchange.question.content) < 200 and talk._waiting == [] and asked == []


def test_answers_stay_on_the_page_below_their_questions(page: ViewerPage, asked: list) -> None:
    talk = page._memory.conversation
    for question in ("where is the cup", "how many cups"):
        talk._question.value = question
        talk._send()
    assert asked == [("ask", "where is the cup"), ("ask", "how many cups")]
    page.answer(Answer("where is the cup", "On the table.", 0.9, node_id="object/2", label="cup", place=np.zeros(3)))
    page.answer(Answer("how many cups", "One."))
    first, second = talk._exchanges
    assert "where is the cup" in first.question.content and "On the table." in first.answer.content
    assert "how many cups" in second.question.content and "One." in second.answer.content
    assert (first.show.visible, second.show.visible) == (True, False)  # the second is about no single object
    assert second.answer.order < first.question.order  # newest first


def test_an_answer_is_put_to_its_own_question(page: ViewerPage) -> None:
    """The first question never gets one: the memory node was restarted meanwhile."""
    talk = page._memory.conversation
    for question in ("where is the cup", "how many cups", "how many cups"):
        talk._question.value = question
        talk._send()
    page.answer(Answer("how many cups", "One."))
    page.answer(Answer("how many cups", "Two."))
    page.answer(Answer("who are you", "A robot."))  # asked before the page was opened anew
    told = [exchange.answer.content for exchange in talk._exchanges]
    assert "..." in told[0] and "One." in told[1] and "Two." in told[2] and "A robot." in told[3]


def test_an_answer_highlights_its_object(page: ViewerPage) -> None:
    page.show_graph(kitchen_graph())
    page._show_answer(Answer("q", "a", node_id="object/3", label="box", place=np.zeros(3)))
    assert page._scene.picked == "object/3"
    assert page._scene._highlight is not None
    assert np.allclose(page._scene._highlight.position, kitchen_graph().nodes["object/3"].pose.position)
    assert "Picked: box" in page._memory._picked.content


def test_the_past_is_marked_until_back_to_now(page: ViewerPage, asked: list) -> None:
    page.show_span(0, 100 * SECOND_NS)
    time = page._memory.time
    assert time._slider.min == -100.0
    time._slider.value = -50.0
    assert asked[-1] == ("past", 50 * SECOND_NS)
    page.show_graph(replace(kitchen_graph(), past=True))
    assert "PAST: the memory" in page._banner._html.content
    assert "simulation time 50.0 s, 50 s ago" in page._banner._html.content
    time.to_now()
    assert asked[-1] == ("past", None)
    assert "PAST" not in page._banner._html.content


def test_a_camera_gets_its_place_with_its_first_picture(page: ViewerPage) -> None:
    for name in ("wrist", "front", "wrist"):
        page.show_camera(name, np.zeros((8, 8, 3), np.uint8))
    assert page._cameras.names == ("wrist", "front")
    pictures = page._cameras._pictures
    assert pictures["front"].order < pictures["wrist"].order


def test_a_camera_that_is_gone_leaves_no_picture_that_looks_as_if_it_were_of_now(page: ViewerPage) -> None:
    for name in ("wrist", "front"):
        page.show_camera(name, np.zeros((8, 8, 3), np.uint8))
    page.keep_cameras(("front", "new"))
    assert page._cameras.names == ("front",) and page._cameras._panel.visible
    page.keep_cameras(())
    assert page._cameras.names == () and not page._cameras._panel.visible
    page.show_camera("wrist", np.zeros((8, 8, 3), np.uint8))
    assert page._cameras.names == ("wrist",) and page._cameras._panel.visible


def test_a_policy_is_chosen_from_what_the_policy_node_names(page: ViewerPage) -> None:
    page.show_policy(PolicyState("base", "v1", "", ("base", "memory")), ())
    assert page._policy._choice.options == ("keep", "base", "memory")
    assert page._policy._choice.visible
    page.show_policy(PolicyState("base", "v1"), ())  # accept is not 'any': nothing may be chosen
    assert not page._policy._choice.visible


def test_of_the_values_only_those_of_the_node_that_was_chosen_are_sent(page: ViewerPage) -> None:
    sent: list[str] = []
    tab = page._nodes
    tab._values._impl.gui_api._websock_interface.queue_message = sent.append  # type: ignore[method-assign]

    def told(count: int) -> list[NodeState]:
        return [NodeState(name, "ok", "active", {"steps": str(count)}) for name in ("sim_node", "safety_node")]

    page.show_nodes(told(1))
    assert tab._choice.options == (NO_NODE, "safety_node", "sim_node")
    assert tab._values.content == ""
    tab._choice.value = "sim_node"
    assert "steps</b></td><td>1" in tab._values.content
    sent.clear()
    page.show_nodes(told(1))
    assert sent == []  # nothing has changed
    page.show_nodes(told(2))
    assert len(sent) == 1 and "steps</b></td><td>2" in tab._values.content
    page.show_nodes(told(2)[1:])  # it is gone
    assert tab._values.content == ""


def test_a_visitor_drives_by_clicks_and_hands_back_by_leaving(page: ViewerPage, monkeypatch) -> None:
    seen, hand = Seen(np.zeros(8), 0.8), page._drive.by_hand
    there = [object()]
    monkeypatch.setattr(page.server, "get_clients", lambda: there)

    def click(keys, label):
        hand._press(keys, SimpleNamespace(target=SimpleNamespace(value=label)))
        return page.by_hand(seen)

    assert not page.by_hand(seen).drives
    wish = click(MOVES, "forward")
    np.testing.assert_allclose(wish.action, [SPEED, 0, 0, 0, 0, 0, 0.8])
    assert (hand._hand_back.label, hand._hand_back.color, hand._hand_back.disabled) == (HAND_BACK, "orange", False)
    assert click(TURNS, "yaw -").action[5] == -SPEED
    assert click({"close or open": "g"}, "close or open").action[6] == -1.0
    hand._clicked.append(False)
    assert not page.by_hand(seen).drives
    assert hand._hand_back.disabled
    hand._clicked.extend((True, "w", False))  # all before anybody looked
    assert not page.by_hand(seen).drives
    hand._clicked.extend(("r", False, True))
    assert page.by_hand(seen).action[2] == 0.0  # that motion was before the robot was handed back
    click(MOVES, "up")
    there.clear()
    assert not page.by_hand(seen).drives


def test_a_button_that_is_clicked_twice_before_anybody_looks_does_what_it_says(page: ViewerPage, monkeypatch) -> None:
    """By one visitor, or by two on two pages."""
    seen = Seen(np.zeros(8), 0.8)
    monkeypatch.setattr(page.server, "get_clients", lambda: [object()])
    buttons = {getattr(b, "label", ""): b for b in page.server.gui._gui_input_handle_from_uuid.values()}
    for label, drives in ((TAKE_OVER, True), (HAND_BACK, False)):
        for _ in range(2):
            for callback in buttons[label]._impl.update_cb:
                callback(None)
        assert page.by_hand(seen).drives == drives


def test_the_robot_moves(page: ViewerPage) -> None:
    before = [handle.position.copy() for handle in page._scene._links]
    page.show_joints(joints())
    assert any(not np.allclose(a, handle.position) for a, handle in zip(before, page._scene._links, strict=True))
