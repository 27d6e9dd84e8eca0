"""No text of the network ends the page: what visitors are sent is checked at their websockets."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
import viser
import zstandard
from websockets.sync.client import connect
from websockets.sync.connection import Connection
from websockets.typing import Subprotocol

from engram.core.ports import free_port
from engram.core.types import EpisodeStatus, SceneEdge
from engram.runtime.policy_notes import POLICIES, POLICY_DRIVES
from engram.viewer.drive_controls import NO_EXAMPLE
from engram.viewer.encodable import CHOICES_MAX, FORBIDDEN
from engram.viewer.gate_report import read_report
from engram.viewer.nodes_tab import NO_NODE
from engram.viewer.page import ViewerPage
from engram.viewer.policy_tab import NO_CHOICE
from engram.viewer.reports import Reports
from engram.viewer.running_goal import RunningGoal
from engram.viewer.values import Answer, Candidate, Graph, Judged, NodeState, Outcome, PageActions, PolicyState
from tests.viewer.scenes import scene_node

BAD = json.loads(r'"\ud800 \u0000 \udfff"')
"""As the JSON of others may have it."""


@pytest.fixture
def page() -> Iterator[ViewerPage]:
    made = ViewerPage(free_port(), PageActions(*[lambda *_: None] * 7))
    yield made
    made.close()


def visit(page: ViewerPage) -> Connection:
    address = f"ws://localhost:{page._gate._port}"
    return connect(address, subprotocols=[Subprotocol(f"viser-v{viser.__version__}")], max_size=None)


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from texts([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for one in value:
            yield from texts(one)


def heard(visitor: Connection, page: ViewerPage) -> list[str]:
    """All texts that a visitor is sent up to now.

    The sign that this is all is a new element: of an old one a newcomer is sent the newest content, before others.
    """
    last = f"/{uuid.uuid4()}"
    page.server.scene.add_label(last, "the page lives")
    found: list[str] = []
    while not any(last in text for text in found):
        block = visitor.recv(timeout=30)
        assert isinstance(block, bytes)
        size = int.from_bytes(block[8:16], "little")
        plain = zstandard.ZstdDecompressor().decompress(block[16 : 16 + size])
        found.extend(texts(msgspec.msgpack.decode(plain)))
    return found


def say_everything(page: ViewerPage, bad: str) -> None:
    """Let ``bad`` be all that the network may say to the page."""
    node = NodeState(bad, "warn", bad, {bad: bad})
    page.show_nodes([node])
    page._nodes._choice.value = page._nodes._choice.options[-1]  # type: ignore[misc]
    page.show_policy(PolicyState(bad, bad, bad, (bad,), bad, bad), [Outcome(1, bad, "failed", 3, bad)])
    report = json.dumps({"tasks": [{"task": bad, "pairs": 1, "candidate": 1, "approved": 1}]})
    found = Judged(bad, bad, bad, 1, read_report(report))
    page.show_learning(node, node, [Candidate(bad, bad, "approved", {"loss": bad, bad: 1})], [found])
    goal = RunningGoal()
    goal.became(EpisodeStatus(0, bad, 3, bad, bad, 1, "running"))
    page.show_goal(goal.html(bad))
    page.show_stopped(bad)
    page.show_examples([bad])
    page.show_camera(bad, np.zeros((8, 8, 3), np.uint8))
    nodes = [scene_node(f"{layer}/{bad}", bad, 0.4, layer=layer, state=bad) for layer in ("object", "room", "agent")]
    page.show_graph(Graph({one.id: one for one in nodes}, (SceneEdge(nodes[0].id, nodes[2].id, bad),)))
    page.reply(bad)
    page.reply_policy(bad)
    page.answer(Answer(bad, bad, 0.5, 1.0, (bad,), nodes[0].id, bad, np.zeros(3)))
    page._pick(nodes[0].id)


def test_no_text_of_the_network_ends_the_page_for_who_is_there_or_comes_later(page: ViewerPage) -> None:
    with visit(page) as before:
        say_everything(page, BAD)
        first = heard(before, page)
    with visit(page) as after:
        second = heard(after, page)
    for sent in (first, second):
        assert not any(map(FORBIDDEN.search, sent))
        assert sum(r"\ud800 \x00 \udfff" in text for text in sent) > 10


def test_harmless_texts_are_shown_as_they_are(page: ViewerPage) -> None:
    words = "Küche: 机器人 \U0001f916\n\tend"
    with visit(page) as visitor:
        page.show_graph(Graph({"object/1": scene_node("object/1", words, 0.4)}))
        assert words in heard(visitor, page)


def test_a_choice_that_comes_twice_is_offered_once(page: ViewerPage) -> None:
    """The browser's list of choices throws at the second one, and nothing of the page is left."""
    reports = Reports(5.0)
    names = ", ".join(["base", NO_CHOICE, "base", *map(str, range(1000))])
    reports.take(NodeState("policy_node", "ok", "active", {POLICY_DRIVES: "base", POLICIES: names}), 0.0)
    page.show_policy(reports.policy(), ())
    offered = page._policy._choice.options
    assert offered[:3] == (NO_CHOICE, "base", "0") and len(set(offered)) == len(offered) == CHOICES_MAX
    page.show_nodes([NodeState(name, "ok", "active") for name in ("sim_node", NO_NODE, BAD, r"\ud800 \x00 \udfff")])
    assert page._nodes._choice.options == (NO_NODE, r"\ud800 \x00 \udfff", "sim_node")
    page.show_examples(["stack", NO_EXAMPLE, "stack"])
    assert page._drive._examples.options == (NO_EXAMPLE, "stack")


def test_the_ids_and_labels_of_others_make_no_scene_of_any_depth_or_length(page: ViewerPage) -> None:
    deep = replace(scene_node("object/1", "x" * 9999, 0.4), id="a/" * 30_000)
    page.show_graph(Graph({deep.id: deep}))
    ((_, (box, label)),) = page._scene._drawn.values()
    assert box.name.count("/") == 2 and len(box.name) < 100
    assert isinstance(label, viser.LabelHandle) and len(label.text) < 200
    page._pick(deep.id)
    assert page._scene.picked == deep.id and page._scene._highlight is not None
