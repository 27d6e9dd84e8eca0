"""Places of another map and stamps of another life do not mix with those of today."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from engram.app.memory_command import Reanchor, reanchor
from engram.core.errors import StoreError
from engram.core.geometry import scene_in_frame
from engram.core.questions import AtTime, FindObject
from engram.core.types import Hand, Pose
from engram.memory.graph.tracker_config import TrackerConfig
from engram.memory.graph_memory import GraphMemoryConfig
from engram.memory.query.language import parse
from engram.memory.robot_memory import RobotMemory, RobotMemoryConfig
from engram.memory.storage.cells import cell_centres, pack
from engram.memory.storage.map_frames import Anchor, anchor_of, reanchored
from engram.memory.storage.place_keys import place_key
from engram.memory.storage.records import LookedTable, RecordTable, strings
from engram.memory.storage.se2 import PlaneTransform
from engram.memory.storage.snapshots import read_snapshot
from engram.memory.storage.store import GraphStore
from engram.memory.storage.tables import whole
from tests.memory.scenes import WordEncoder, seen, view

SECOND = 10**9
HERE, THERE = (0.5, 0.1, 0.02), (0.65, -0.15, 0.02)
BASE = Pose(np.array([10.0, 20.0, 0.0]), np.array([np.sqrt(0.5), 0, 0, np.sqrt(0.5)]), "map")  # turned left


def of_map(name: str) -> RobotMemoryConfig:
    return RobotMemoryConfig(graph=GraphMemoryConfig(map=name, tracker=TrackerConfig(frame="map")))


def lived(folder) -> None:
    """A driving robot at (10, 20), turned left, sees a cup 0.5 m ahead and 0.1 m to its left, and that it is moved."""
    memory = RobotMemory(GraphStore(folder), of_map("house 1"), WordEncoder())
    for second, place in enumerate((HERE, HERE, HERE, THERE, THERE)):
        scene = view([seen("red cup", place), seen("blue bowl", (0.3, 0.0, 0.02))], second * SECOND)
        memory.update(scene_in_frame(scene, BASE, np.eye(3) * 1e-4))
    memory.consolidate(1.0)
    memory.commit()
    memory.close()
    memory.scene.store.close()


def test_a_driving_robot_remembers_places_of_the_map(tmp_path):
    lived(tmp_path)
    assert anchor_of(read_snapshot(tmp_path)) == Anchor("map", "house 1")
    memory = RobotMemory(GraphStore(tmp_path), of_map("house 1"), WordEncoder())
    was = memory.query(AtTime(FindObject("red cup"), (SECOND, SECOND))).nodes[0]
    np.testing.assert_allclose(was.pose.position, (9.9, 20.5, 0.02), atol=1e-5)  # x ahead is y of the map
    assert was.pose.frame == "map"
    assert memory.graph().nodes[0].layer == "object"  # no table in front of a robot that drives


def test_a_memory_of_another_map_is_refused_by_name(tmp_path):
    lived(tmp_path)
    with pytest.raises(StoreError, match=r"in frame 'map' of map 'house 1', not in .*memory reanchor --map"):
        RobotMemory(GraphStore(tmp_path), of_map("house 2"), WordEncoder())


def test_a_memory_of_another_frame_is_refused_with_what_opens_it(tmp_path):
    """Reanchoring keeps the frame: it would not help."""
    lived(tmp_path)
    with pytest.raises(StoreError, match=r"in frame 'map' .*, not in 'base_link' .* frame:='map' map:='house 1'") as no:
        RobotMemory(GraphStore(tmp_path), RobotMemoryConfig(), WordEncoder())
    assert "engram memory reanchor" not in str(no.value)


def test_reanchoring_carries_the_places_of_all_stores(tmp_path):
    """The new map begins 1 m further back and is turned by 90 degrees: (x, y) -> (-y + 1, x + 2)."""
    lived(tmp_path / "old")
    stored = reanchored(
        read_snapshot(tmp_path / "old"), PlaneTransform(np.pi / 2, np.array([1.0, 2.0, 0.0])), "house 2"
    )
    store = GraphStore(tmp_path / "new")
    store.commit(whole(stored.tables), stored.sequence, stored.stamp_ns, stored.about)
    store.close()
    memory = RobotMemory(GraphStore(tmp_path / "new"), of_map("house 2"), WordEncoder())
    answer = memory.query(FindObject("red cup", limit=20))
    was = memory.query(AtTime(FindObject("red cup"), (SECOND, SECOND))).nodes[0]
    now = (10.15, 20.65, 0.02)  # in the old map
    np.testing.assert_allclose(answer.nodes[0].pose.position, (-now[1] + 1, now[0] + 2, 0.02), atol=1e-6)
    np.testing.assert_allclose(was.pose.position, (-20.5 + 1, 9.9 + 2, 0.02), atol=1e-5)
    places = [one.place for one in answer.evidence if one.place is not None]
    assert {"short_term", "episodic"} <= {one.source for one in answer.evidence}
    assert all(np.linalg.norm(place[:2] - (-19.5, 12.0)) < 0.5 for place in places)
    there = np.array([-19.5, 12.0, 0.0])
    assert memory.tracker.coverage.last_look(there - 0.3, there + 0.3) == 4 * SECOND


def test_what_the_hand_held_it_holds_in_the_new_map(tmp_path):
    """Gripped 1 cm off its middle at (10, 20), turned left. In the new map the robot stands at (-19, 12), turned round:
    what its hand lifts to (0.5, 0.1, 0.3) ahead of it is at (-19.5, 11.9, 0.3) there, and the cup 1 cm beside that."""
    hand = Hand(Pose(np.array([0.5, 0.1, 0.02]), np.array([1.0, 0, 0, 0])), 0.5)
    memory = RobotMemory(GraphStore(tmp_path), of_map("house 1"), WordEncoder())
    for second, closed in enumerate((0.0, 0.0, 0.0, 0.5)):
        scene = view([seen("red cup", (0.51, 0.1, 0.02))], second * SECOND)
        memory.update(scene_in_frame(replace(scene, hand=replace(hand, closed=closed)), BASE, np.eye(3) * 1e-6, "cart"))
    memory.commit()
    memory.close()
    memory.scene.store.close()
    reanchor(Reanchor(map="house 2", transform=(1.0, 2.0, 0.0, np.pi / 2)), tmp_path)
    memory = RobotMemory(GraphStore(tmp_path), of_map("house 2"), WordEncoder())
    assert [node.label for node in memory.query(parse("what is the robot holding", 4 * SECOND)).nodes] == ["red cup"]
    lifted = replace(hand, pose=replace(hand.pose, position=np.array([0.5, 0.1, 0.3])))
    base = Pose(np.array([-19.0, 12.0, 0.0]), np.array([0.0, 0.0, 0.0, 1.0]), "map")
    scene = replace(view([], 5 * SECOND, depth=0.5), hand=lifted)
    memory.update(scene_in_frame(scene, base, np.eye(3) * 1e-6, "cart"))
    cup = memory.query(FindObject("red cup")).nodes[0]
    np.testing.assert_allclose(cup.pose.position, (-19.51, 11.9, 0.3), atol=1e-3)
    memory.close()
    memory.scene.store.close()


def test_reanchored_in_place_a_memory_has_looked_nowhere_that_it_did_not(tmp_path):
    """Turned by 0.1 rad, cells fall into one: what they leave free holds no cell of the old map."""
    lived(tmp_path)
    memory = RobotMemory(GraphStore(tmp_path), of_map("house 1"), WordEncoder())
    for second in range(5, 11):  # it drives on, 1 m a second
        base = replace(BASE, position=BASE.position + np.array([second - 4.0, 0.0, 0.0]))
        memory.update(scene_in_frame(view([], second * SECOND), base, np.eye(3) * 1e-4))
    memory.commit()
    memory.close()
    memory.scene.store.close()
    before = LookedTable().restore(read_snapshot(tmp_path).tables)
    reanchor(Reanchor(map="house 2", transform=(1.0, 2.0, 0.0, 0.1)), tmp_path)
    moved = pack(PlaneTransform(0.1, np.array([1.0, 2.0, 0.0])).apply(cell_centres(np.array(list(before)))))
    expected: dict[int, int] = {}
    for cell, stamp in zip(moved.tolist(), before.values(), strict=True):
        expected[cell] = max(stamp, expected.get(cell, 0))
    assert len(expected) < len(before)
    memory = RobotMemory(GraphStore(tmp_path), of_map("house 2"), WordEncoder())
    assert LookedTable().restore(read_snapshot(tmp_path).tables) == expected
    assert len(memory.tracker.coverage) == len(expected)
    old = np.array([10.0, 20.5, 0.0])
    assert memory.tracker.coverage.last_look(old - 0.3, old + 0.3) is None
    looks(memory, {"red cup": (0.5, 0.1)}, IN_OFFICE, 20)  # 10 m from everything: the free rows are used
    memory.commit()
    assert LookedTable().restore(read_snapshot(tmp_path).tables).items() > expected.items()


def semantic(stored):
    return {one.key: one.data for one in RecordTable().restore(stored.tables)["semantic"]}


def test_habits_count_on_under_the_cells_of_the_new_map(tmp_path):
    lived(tmp_path)
    stored = reanchored(read_snapshot(tmp_path), PlaneTransform(0.1, np.array([1.0, 2.0, 0.0])), "house 2")
    known = semantic(stored)
    stays = [data for key, data in known.items() if key.startswith("stay/")]
    assert len(stays) == 2 and known["class/red cup"]["places"]
    for stay in stays:
        assert stay["key"] == place_key("", np.array(stay["place"]))
    for key, row in known["class/red cup"]["places"].items():
        assert key == place_key("", np.array(row[3:6]))


def test_usual_places_that_fall_into_one_cell_are_one_place(tmp_path):
    """Shifted by 0.1 m, x 0.45 and x 0.55 both lie between 0.5 and 1.0; what a node carries keeps its name."""
    lived(tmp_path)
    stored = read_snapshot(tmp_path)
    places = {"cell 0 0 0": ["", 1, 10.0, 0.45, 0.1, 0.0], "cell 1 0 0": ["", 3, 30.0, 0.55, 0.1, 0.0],
              "place_0001": ["table", 2, 5.0, 0.5, 0.1, 0.0]}  # fmt: skip
    record = json.dumps(["semantic", "class/cup", {"places": places, "seen_ns": 0}, False])
    stored = replace(stored, tables={**stored.tables, "records": {"text": strings([record])}})
    found = semantic(reanchored(stored, PlaneTransform(0.0, np.array([0.1, 0.0, 0.0])), "house 2"))
    assert set(found["class/cup"]["places"]) == {"cell 1 0 0", "place_0001"}
    label, visits, seconds, *mean = found["class/cup"]["places"]["cell 1 0 0"]
    assert (label, visits, seconds) == ("", 4, 40.0)
    np.testing.assert_allclose(mean, (0.625, 0.1, 0.0))  # (0.55 + 3 x 0.65) / 4


def test_a_clock_that_begins_anew_moves_what_was_before_its_beginning(tmp_path):
    """A simulation ran for 100 s and was restarted at 3 s: what was seen then is older than what is now.

    The third frame confirms it.
    """
    memory = RobotMemory(GraphStore(tmp_path), encoder=WordEncoder())
    memory.begin_episode("carry", "put the red cup away", 98 * SECOND)
    for second, place in ((98, HERE), (99, HERE), (100, THERE)):
        memory.update(view([seen("red cup", place)], second * SECOND))
    memory.end_episode("carry", "succeeded", 100 * SECOND)
    for second in (3, 4, 5):
        memory.update(view([seen("red cup", THERE), seen("blue bowl", (0.3, 0.0, 0.02))], second * SECOND))
    memory.commit()
    memory.close()
    memory.scene.store.close()
    again = RobotMemory(GraphStore(tmp_path), encoder=WordEncoder())
    assert all(event.end_ns <= 5 * SECOND for event in again.episodic.events)
    assert [(one.start_ns, one.end_ns) for one in again.episodic.episodes] == [(0, 2 * SECOND)]
    newest = again.query(FindObject(limit=20)).evidence
    recent = sorted((one for one in newest if one.source == "short_term"), key=lambda one: -one.stamp_ns)
    assert [(one.text.split()[2], one.stamp_ns) for one in recent] == [("bowl", 5 * SECOND), ("cup", 2 * SECOND)]


# -- a localisation that jumps ----------------------------------------------------------------------------------------

KITCHEN = {"red cup": (0.5, 0.1), "blue bowl": (0.3, 0.0), "green plate": (0.7, 0.2), "red kettle": (0.4, -0.25),
           "blue spoon": (0.6, -0.1)}  # fmt: skip
OFFICE = {"green lamp": (0.5, 0.2), "blue pen": (0.3, -0.1), "red stapler": (0.7, 0.0), "green mug": (0.5, -0.2)}
AT_HOME = Pose(np.zeros(3), np.array([1.0, 0, 0, 0]), "map")
IN_OFFICE = Pose(np.array([20.0, 0.0, 0.0]), np.array([1.0, 0, 0, 0]), "map")
OFF = Pose(np.array([0.4, -0.3, 0.0]), np.array([np.cos(0.1), 0, 0, np.sin(0.1)]), "map")
"""The robot stands at the origin; its localisation says: 0.4 m ahead, 0.3 m to the right, turned by 0.2 rad."""


def looks(memory, things, base, second, agent="cart"):
    objects = [seen(label, (*place, 0.02)) for label, place in things.items()]
    scene = view(objects, round(second * SECOND), depth=0.5)  # what is not seen is hidden, not gone
    return memory.update(scene_in_frame(scene, base, np.eye(3) * 1e-4, agent))


def places(memory):
    return {n.label: tuple(n.pose.position.round(2)[:2]) for n in memory.graph().nodes if n.layer == "object"}


@pytest.fixture
def at_home():
    memory = RobotMemory(config=of_map("house 1"), encoder=WordEncoder())
    for second in range(4):
        looks(memory, KITCHEN, AT_HOME, second)
    return memory


def test_a_frame_whose_landmarks_are_displaced_alike_is_refused_and_moves_nothing(at_home):
    before, sequence = places(at_home), at_home.graph().sequence
    update = looks(at_home, KITCHEN, OFF, 4)
    assert "5 of 5 landmarks in view are displaced alike" in update.refused and "0.20 rad" in update.refused
    assert (update.nodes, update.sequence, places(at_home)) == ((), sequence, before)
    (robot,) = [node for node in at_home.graph().nodes if node.layer == "agent"]
    assert robot.pose.position[0] == 0.0  # nor is the robot believed to be there
    assert not looks(at_home, KITCHEN, AT_HOME, 5).refused  # found again


def test_one_thing_that_moved_is_no_jump_and_too_few_landmarks_say_nothing(at_home):
    moved = {**KITCHEN, "red cup": (0.9, 0.3)}
    assert not looks(at_home, moved, AT_HOME, 4).refused
    few = {label: KITCHEN[label] for label in ("blue bowl", "green plate", "red kettle")}
    assert not looks(at_home, few, OFF, 5).refused


def test_things_moved_each_its_own_way_are_no_jump(at_home):
    spots = [(0.3, 0.3), (0.9, 0.1), (0.35, -0.2), (0.8, 0.35), (0.2, 0.2)]
    assert not looks(at_home, dict(zip(KITCHEN, spots, strict=True)), AT_HOME, 4).refused


def test_things_carried_off_together_are_believed_once_other_landmarks_stand_right(at_home):
    tray = {label: (x + 0.2, y + 0.3) for label, (x, y) in KITCHEN.items()}
    for second in range(4, 8):
        looks(at_home, OFFICE, IN_OFFICE, second)
    assert looks(at_home, tray, AT_HOME, 8).refused
    assert looks(at_home, tray, AT_HOME, 9).refused  # nothing new is known
    assert not looks(at_home, OFFICE, IN_OFFICE, 10).refused
    assert not looks(at_home, tray, AT_HOME, 11).refused


def test_an_arm_on_its_table_has_no_localisation_to_doubt():
    memory = RobotMemory(encoder=WordEncoder())
    for second in range(4):
        memory.update(view([seen(label, (*place, 0.02)) for label, place in KITCHEN.items()], second * SECOND))
    tray = [seen(label, (x + 0.2, y + 0.3, 0.02)) for label, (x, y) in KITCHEN.items()]
    assert not memory.update(view(tray, 4 * SECOND)).refused
