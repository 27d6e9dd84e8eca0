"""Answers that a stranger can believe: old stores, unknown places, counts and attributes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from engram.core.contracts import MemoryAnswer
from engram.core.errors import UnknownNameError
from engram.core.questions import AtTime, Attribute, Count, FindObject, Question, Relation, Selection
from engram.memory import DetectedObject, Pose, RobotMemory, SceneObservation
from engram.memory.graph.places import known_place
from engram.memory.graph_memory import GraphMemory
from engram.memory.query import registry
from engram.memory.query.language import parse
from engram.memory.query.phrases import age
from engram.memory.query.registry import register
from tests.memory.scenes import WordEncoder, seen, view

SECOND, DAY = 10**9, 86_400 * 10**9
THEN = 1_700_000_000 * SECOND
"""A wall-clock stamp."""
TRAY = known_place("place", "tray", (0.4, 0, 0), (0.3, 0.3, 0.02))


def watch(memory, objects, start_ns=0, frames=4):
    """Show ``memory`` the detections ``objects`` in ``frames`` frames, a second apart."""
    for i in range(frames):
        memory.update(view(objects, start_ns + i * SECOND))


@pytest.fixture
def cups():
    """Two cups and a bowl on a tray, one cup beside it."""
    memory = GraphMemory(encoder=WordEncoder(), places=(TRAY,))
    watch(memory, [seen("red cup", (0.35, 0, 0.03)), seen("blue cup", (0.45, 0, 0.03)),
                   seen("green cup", (0.5, 0.3, 0.03)),
                   seen("red bowl", (0.4, 0.1, 0.03))])  # fmt: skip
    return memory


def ask(memory, words, now_ns=5 * SECOND):
    return memory.query(parse(words, now_ns))


# -- age and confidence ----------------------------------------------------------------------------------------------


def test_a_store_a_year_old_does_not_say_that_it_sees_anything(tmp_path):
    cup = DetectedObject("red cup", Pose(np.array([0.4, 0.1, 0.02])))
    with RobotMemory.open(tmp_path, encoder=WordEncoder()) as memory:
        for i in range(8):
            memory.update(SceneObservation(THEN + i * SECOND, objects=(cup,)))
        fresh = memory.ask("where is the red cup", now_ns=THEN + 8 * SECOND)
    with RobotMemory.open(tmp_path, read_only=True, encoder=WordEncoder()) as memory:
        old = memory.ask("where is the red cup", now_ns=THEN + 365 * DAY)
    assert fresh.text.endswith("z 0.02 m; I see it.") and fresh.confidence > 0.95
    assert old.confidence < 0.01
    assert old.text.startswith("I last saw the red cup 12 months ago at x 0.40") and "may be somewhere else" in old.text
    assert "belief" not in old.text + fresh.text and "I see it" not in old.text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.3, "less than a second"), (1, "1 second"), (119, "119 seconds"), (121, "2 minutes"), (7199, "120 minutes"),
        (7200, "2 hours"), (3 * 86400, "3 days"), (30 * 86400, "4 weeks"), (91 * 86400, "3 months"),
        (365 * 86400, "12 months"), (3 * 366 * 86400, "3 years"),
    ],
)  # fmt: skip
def test_ages_are_told_in_the_unit_that_fits(seconds, words):
    assert age(round(seconds * SECOND)) == words


def test_without_the_robots_place_no_distance_is_told(cups):
    watch(cups, [], 10 * SECOND)
    unknown = ask(cups, "where is the red cup", 40 * DAY).advice
    known = cups.query(parse("where is the red cup", 40 * DAY).refined(robot_place=np.array([3.4, 0.0, 0.0]))).advice
    assert unknown.look and "m away" not in unknown.text and "% that it is there" in unknown.text
    assert "3.0 m away" in known.text


# -- counts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "question"),
    [
        ("how many cups are there?", Count("cups")),
        ("How many cups do you know?", Count("cups")),
        ("how many red cups are on the tray", Count("red cups", "on", "tray")),
        ("how many objects are in the drawer", Count("", "in", "drawer")),
        ("count the cups", Count("cups")),
        ("is the cup red?", Attribute("cup", "red")),
        ("Is the drawer open?", Attribute("drawer", "open")),
        ("what colour is the cup", Attribute("cup")),
        ("what color was the small cup", Attribute("small cup")),
        ("is the red cup on the tray", Relation("on", "tray", "red cup")),
        ("where is the red cup", FindObject("red cup")),
    ],
)
def test_each_sentence_is_its_own_kind_of_question(words, question):
    assert parse(words, 7) == question.refined(now_ns=7)


def test_objects_are_counted_and_named(cups):
    assert ask(cups, "how many cups are there").text == "I know of 3 cups: the blue cup, the green cup and the red cup."
    tray = ask(cups, "how many cups are on the tray")
    assert tray.text == "I know of 2 cups on the tray: the blue cup and the red cup."
    assert {node.label for node in tray.nodes} == {"red cup", "blue cup"} and tray.confidence > 0.9
    assert ask(cups, "how many bowls are there").text == "I know of 1 bowl: the red bowl."
    assert ask(cups, "how many objects are on the tray").text.startswith("I know of 3 objects on the tray: ")
    none = ask(cups, "how many spoons are there")
    assert (none.text, none.nodes, none.confidence) == ("I know of no spoon.", (), 0.0)


def test_labels_are_found_as_one_says_them_however_they_are_spelt(cups):
    spelt = replace(seen("coffee cup", (0.7, 0.2, 0.03)), label="Coffee_Cup")
    watch(cups, [spelt, seen("Bowl", (0.5, -0.2, 0.03))], 10 * SECOND)
    assert ask(cups, "how many coffee cups are there", 20 * SECOND).text.startswith("I know of 1 coffee cup")
    assert ask(cups, "how many bowls are there", 20 * SECOND).text.startswith("I know of 1 bowl: the Bowl")
    assert ask(cups, "what is near the coffee cup", 20 * SECOND).text


def test_what_left_is_not_counted_but_was_then(cups):
    left = [seen("blue cup", (0.45, 0, 0.03)), seen("red bowl", (0.4, 0.1, 0.03))]
    watch(cups, left, 10 * SECOND, frames=6)
    assert ask(cups, "how many cups are there", 20 * SECOND).text == "I know of 1 cup: the blue cup."
    then = ask(cups, "how many cups were there at 3 s", 20 * SECOND)
    assert then.text.startswith("I knew of 3 cups at that time: ")


# -- attributes ------------------------------------------------------------------------------------------------------


def test_a_colour_is_confirmed_or_denied(cups):
    assert ask(cups, "is the bowl red").text.startswith("Yes: the bowl is red; it is at x 0.40")
    assert ask(cups, "is the bowl green").text.startswith("No: the bowl is red; ")
    assert ask(cups, "what colour is the bowl").text.startswith("The bowl is red; ")
    several = ask(cups, "is the cup blue")
    assert (
        several.text.startswith("Yes: the cup is blue; ")
        and "I also know of a red one and a green one." in several.text
    )
    assert several.nodes[0].label == "blue cup"


def test_a_colour_that_the_label_does_not_say_is_the_measured_one(cups):
    watch(cups, [seen("vase", (0.7, 0.2, 0.05), color=(0.0, 0.9, 0.0))], 10 * SECOND)
    assert ask(cups, "is the vase green", 14 * SECOND).text.startswith("Yes: the vase is green")


def test_what_nobody_measures_is_not_made_up(cups):
    opened = ask(cups, "is the bowl open")
    assert opened.text.startswith("I do not know whether the red bowl is open") and opened.confidence == 0.0
    plain = GraphMemory(encoder=WordEncoder())
    for i in range(4):
        plain.update(SceneObservation(i * SECOND, objects=(DetectedObject("vase", Pose(np.array([0.4, 0.1, 0.02]))),)))
    gray = ask(plain, "is the vase gray")
    assert gray.text.startswith("I do not know the colour of the vase") and gray.confidence == 0.0


def test_an_object_that_is_elsewhere_is_denied_with_its_place(cups):
    denied = ask(cups, "is the green cup on the tray")
    assert denied.nodes == () and denied.text.startswith("No: the green cup is at x 0.50, y 0.30")
    assert ask(cups, "is the red cup on the tray").text.endswith("on the tray; I see it.")


# -- a kind of question from outside -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Newest(Question):
    """What did you see last?"""

    def selection(self) -> Selection:
        return Selection(limit=self.limit, now_ns=self.now_ns)


def answer_newest(question, context):
    hits = context.search(context.selection(question))
    node = max(hits.nodes, key=lambda one: one.last_seen_ns)
    return MemoryAnswer((node,), (1.0,), f"The newest is the {node.label}.", 1.0)


def test_a_new_kind_of_question_is_a_handler_and_a_rule(cups):
    watch(cups, [seen("yellow key", (0.7, 0.2, 0.03))], 10 * SECOND)
    with pytest.raises(UnknownNameError, match=r"Newest.*AtTime.*FindObject"):
        cups.query(Newest())
    register(Newest, answer_newest, lambda words: Newest() if words == "what did you see last" else None)
    try:
        assert ask(cups, "What did you see last?", 20 * SECOND).text == "The newest is the yellow key."
        assert isinstance(parse("what did you see last at 2 s", 20 * SECOND), AtTime)
        assert ask(cups, "where is the red cup", 20 * SECOND).nodes[0].label == "red cup"
    finally:
        registry._KINDS.pop(Newest)
    assert parse("what did you see last", 0) == FindObject("what did you see last", now_ns=0)
