"""What stood in a relation to what, at a time that is past: the target as it was called and where it stood then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engram.core.errors import UnknownNameError
from engram.memory.graph.places import known_place, table
from engram.memory.graph_memory import GraphMemory
from engram.memory.query.language import parse
from engram.memory.storage.snapshots import read_snapshot
from engram.memory.storage.store import GraphStore
from tests.memory.scenes import WordEncoder, seen, view

SECOND = 10**9
LEFT, RIGHT = (0.4, 0.3, 0.02), (0.4, -0.4, 0.02)
BESIDE_LEFT, BESIDE_RIGHT = (0.5, 0.3, 0.02), (0.5, -0.4, 0.02)


def watch(memory, seconds, **places):
    """Show ``memory`` the objects at ``places`` (3,) m, a frame a second."""
    for second in seconds:
        memory.update(view([seen(label.replace("_", " "), place) for label, place in places.items()], second * SECOND))


def labels(memory, words):
    return {node.label for node in memory.query(parse(words, 1000 * SECOND)).nodes}


@pytest.fixture
def memory():
    """A red cup beside a blue bowl until 5 s, from 10 s on 70 cm away beside a green fork. Bowl and fork stay."""
    memory = GraphMemory(encoder=WordEncoder())
    still = {"blue_bowl": BESIDE_LEFT, "green_fork": BESIDE_RIGHT}
    watch(memory, range(1, 6), red_cup=LEFT, **still)
    watch(memory, range(10, 16), red_cup=RIGHT, **still)
    return memory


def forget(memory, label, second):
    """Let the object called ``label`` go, and the graph forget it with the frame after ``second`` s."""
    left = {n.label: n.pose.position for n in memory.graph().nodes if n.layer == "object" and n.label != label}
    (gone,) = [node.id for node in memory.graph().nodes if node.label == label]
    watch(memory, range(second, second + 5), **left)
    memory.tracker.expired.add(gone)
    watch(memory, [second + 5], **left)
    assert label not in {node.label for node in memory.graph().nodes}
    return gone


def test_near_means_where_the_target_stood_at_that_time(memory):
    assert labels(memory, "what is near the red cup") == {"green fork"}
    assert labels(memory, "what was near the red cup at 12 s") == {"green fork"}
    assert labels(memory, "what was near the red cup at 3 s") == {"blue bowl"}
    assert labels(memory, "what did you think was near the red cup at 8 s") == {"blue bowl"}
    assert labels(memory, "was the green fork near the red cup at 3 s") == set()
    assert labels(memory, "was the blue bowl near the red cup at 3 s") == {"blue bowl"}


def test_what_was_near_before_it_was_ever_seen_is_nothing(memory):
    watch(memory, range(20, 24), red_cup=RIGHT, tin=(0.6, 0.3, 0.02), blue_bowl=BESIDE_LEFT, green_fork=BESIDE_RIGHT)
    assert labels(memory, "what was near the tin at 22 s") == {"blue bowl"}
    assert labels(memory, "what was near the tin at 3 s") == set()


def test_what_is_gone_is_found_by_label_or_id_where_it_was(memory):
    gone = forget(memory, "red cup", 20)
    for name in ("red cup", "cup", gone):
        assert labels(memory, f"what was near the {name} at 3 s") == {"blue bowl"}
        assert labels(memory, f"what was near the {name} at 12 s") == {"green fork"}
    assert labels(memory, "was the blue bowl near the red cup at 3 s") == {"blue bowl"}
    assert "The blue bowl was near the red cup" in memory.query(parse("what was near the red cup at 3 s", 10**12)).text
    assert "Nothing was near the red cup" in memory.query(parse("what was near the red cup at 100 s", 10**12)).text
    for now in ("what is near the red cup", "what is near the yellow cup", "what was near the yellow cup at 3 s"):
        with pytest.raises(UnknownNameError, match=r"unknown node or label '.* cup'"):
            memory.query(parse(now, 1000 * SECOND))


def test_what_was_in_a_box_that_is_gone_is_found():
    memory = GraphMemory(encoder=WordEncoder())
    for second in range(1, 6):
        box, key = seen("cardboard box", (0.4, 0.3, 0.05), size=0.1), seen("small key", (0.4, 0.3, 0.06), size=0.02)
        memory.update(view([box, key], second * SECOND))
    watch(memory, range(10, 15), small_key=(0.4, -0.3, 0.02))
    memory.tracker.expired.add("object_0001")
    watch(memory, [15], small_key=(0.4, -0.3, 0.02))
    assert {node.label for node in memory.graph().nodes if node.layer == "object"} == {"small key"}
    assert labels(memory, "what was in the cardboard box at 3 s") == {"small key"}


def test_places_are_where_they_always_were():
    places = (table(), known_place("place", "drawer", (0.4, 0.3, 0.05), (0.2, 0.2, 0.12)))
    memory = GraphMemory(encoder=WordEncoder(), places=places)
    watch(memory, range(1, 6), red_cup=LEFT)
    watch(memory, range(10, 16), red_cup=RIGHT)
    assert labels(memory, "what was in the drawer at 3 s") == {"red cup"}
    assert labels(memory, "what was near the drawer at 3 s") == {"red cup"}
    assert labels(memory, "what was near the drawer at 12 s") == set()


def test_what_has_another_name_now_is_found_by_the_one_that_it_had():
    """For 5 s it is called a red mug, from then on a red cup, which in the end outvotes the mug."""
    memory, mug, bowl = GraphMemory(encoder=WordEncoder()), seen("red mug", LEFT), seen("blue bowl", BESIDE_LEFT)
    for second in range(1, 31):
        memory.update(view([replace(mug, label="red mug" if second <= 5 else "red cup"), bowl], second * SECOND))
    assert {node.label for node in memory.graph().nodes if node.layer == "object"} == {"red cup", "blue bowl"}
    assert labels(memory, "what was near the red mug at 3 s") == {"blue bowl"}
    assert labels(memory, "what was near the red cup at 3 s") == {"blue bowl"}
    assert labels(memory, "what was near the red mug at 29 s") == set()


def test_two_of_one_name_are_both_asked_about():
    memory = GraphMemory(encoder=WordEncoder())
    still = {"blue_bowl": BESIDE_LEFT, "green_fork": BESIDE_RIGHT}
    for second in range(1, 6):
        cups = [seen("red cup", LEFT), seen("red cup", RIGHT)]
        memory.update(view(cups + [seen(k.replace("_", " "), v) for k, v in still.items()], second * SECOND))
    forget(memory, "blue bowl", 10)
    assert labels(memory, "what was near the red cup at 3 s") == {"blue bowl", "green fork"}


@pytest.mark.parametrize("again", [False, True])
def test_what_is_gone_had_the_size_that_it_had(tmp_path, again):
    """A tray of 0.6 x 0.4 m; the bowl stands 0.75 m from its middle: near is 0.5 m and the tray's half diagonal."""
    store = GraphStore(tmp_path) if again else None
    memory = GraphMemory(store, encoder=WordEncoder())
    size = np.array([0.6, 0.4, 0.02])
    tray = replace(seen("wooden tray", (0.4, 0.3, 0.01)), size=size)
    for second in range(1, 6):
        things = [tray, seen("red cup", (0.5, 0.35, 0.04)), seen("blue bowl", (0.4, -0.45, 0.02))]
        memory.update(view(things, second * SECOND))
    gone = forget(memory, "wooden tray", 10)
    if store is not None:
        memory.commit()
        store.close()
        memory = GraphMemory(GraphStore(tmp_path), encoder=WordEncoder())
    assert labels(memory, "what was on the wooden tray at 3 s") == {"red cup"}
    assert labels(memory, "what was near the wooden tray at 3 s") == {"red cup", "blue bowl"}
    (then,) = [node for node in memory.graph(3 * SECOND).nodes if node.id == gone]
    np.testing.assert_allclose(then.size, size, atol=1e-6)
    memory.tracker.history.retract(gone, 50 * SECOND)
    memory.tracker.history.thin(0)  # what no fact tells of any more needs no size
    memory.thin()
    assert not list(memory.tracker.removed)
    if memory.store is not None:
        memory.update(view([], 100 * SECOND))
        memory.commit()
        memory.store.close()
        assert "gone" not in GraphMemory(stored=read_snapshot(tmp_path), encoder=WordEncoder()).restored


def test_a_false_sight_leaves_no_size_behind():
    memory = GraphMemory(encoder=WordEncoder())
    memory.update(view([seen("red cup", LEFT)], SECOND))
    for second in range(2, 8):
        memory.update(view([], second * SECOND))
    assert list(memory.tracker.removed) == ["object_0001"] and memory.tracker.removed.records() == ([], [])
