"""Two robots, two frames, one memory: and apart again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from engram.core.errors import InvalidInputError, UnknownNameError
from engram.core.questions import AtTime, FindObject, Relation
from engram.core.types import Hand, Pose, SceneObservation
from engram.memory.graph.conflicts import Conflict
from engram.memory.graph.places import known_place
from engram.memory.graph_memory import GraphMemory
from engram.memory.merging import memories
from engram.memory.merging.fleet import join, keep_apart, merge_from, partition, unmerge
from engram.memory.storage.fact_columns import FOREVER
from engram.memory.storage.se2 import PlaneTransform
from engram.memory.storage.snapshots import read_snapshot
from engram.memory.storage.store import GraphStore
from tests.memory.scenes import WordEncoder, seen, view

SHARED = {"red cube": (0.5, 0.1), "green cup": (0.65, -0.15), "blue bowl": (0.35, 0.2), "red plate": (0.6, 0.3)}
YAW, SHIFT = 0.6, np.array([0.3, -0.2, 0.0])
"""p_ours = turn(0.6 rad) p_theirs + (0.3, -0.2, 0)."""
KETTLES = Conflict(
    "moved", "object_0005", "robot1/object_0006",
    "object_0005 and robot1/object_0006: one green kettle that was moved, or two of them",
)  # fmt: skip


def theirs(place, rng):
    """Return a place (x, y) of our frame as the other robot measures it, 5 mm off."""
    turned = Rotation.from_euler("z", -YAW).apply(np.array([*place, 0.02]) - SHIFT)
    return turned + np.append(rng.normal(0, 0.005, 2), 0)


def watch(memory, things, start=0, times=4):
    objects = [seen(label, place) for label, place in things.items()]
    for stamp in range(start, start + times):
        memory.update(view(objects, stamp, depth=0.5))  # what is not seen is hidden, not gone


@pytest.fixture
def other(tmp_path):
    """Robot 1's store: the shared things, a spoon that we do not know, and our kettle at another place."""
    rng = np.random.default_rng(0)
    memory = GraphMemory(GraphStore(tmp_path), encoder=WordEncoder())
    spots = {label: theirs(place, rng) for label, place in SHARED.items()}
    spots |= {"blue spoon": theirs((0.45, -0.2), rng), "green kettle": theirs((0.8, 0.0), rng)}
    watch(memory, spots, start=100)
    memory.commit()
    return read_snapshot(tmp_path)


@pytest.fixture
def ours():
    memory = GraphMemory(encoder=WordEncoder())
    watch(memory, {label: (*place, 0.02) for label, place in SHARED.items()} | {"green kettle": (0.3, -0.3, 0.02)})
    return memory


def where(memory, label):
    return memory.query(FindObject(label)).nodes[0].pose.position


def test_the_frame_is_found_and_what_both_know_is_one(ours, other):
    report = merge_from(ours.tracker, other, "robot1")
    assert report.transform.yaw == pytest.approx(YAW, abs=0.03)
    np.testing.assert_allclose(report.transform.shift, SHIFT, atol=0.03)
    assert len(report.matched) == 4 and report.transform.inliers == 4
    np.testing.assert_allclose(where(ours, "blue spoon")[:2], (0.45, -0.2), atol=0.02)
    assert partition(ours.tracker, "robot1") == ["robot1/object_0005", "robot1/object_0006"]
    (cube,) = [n for n in ours.graph().nodes if n.label == "red cube"]
    assert cube.observations == 8  # four of ours, four of theirs
    assert cube.last_evidence == "robot1/front@103"


def test_what_contradicts_itself_is_kept_apart_and_named(ours, other):
    report = merge_from(ours.tracker, other, "robot1")
    assert report.conflicts == (KETTLES,)
    assert len([n for n in ours.graph().nodes if n.label == "green kettle"]) == 2


def test_taken_out_again_nothing_of_theirs_is_left_and_ours_stays(ours, other):
    before = {n.id: n for n in ours.graph().nodes}
    merge_from(ours.tracker, other, "robot1")
    watch(ours, {"red cube": (0.5, 0.12, 0.02)}, start=200)  # we go on looking
    assert unmerge(ours.tracker, "robot1") == 6
    after = {n.id: n for n in ours.graph().nodes}
    assert set(after) == set(before)
    np.testing.assert_allclose(after["object_0001"].pose.position[:2], (0.5, 0.12), atol=0.01)
    np.testing.assert_array_equal(after["object_0002"].pose.position, before["object_0002"].pose.position)
    assert after["object_0002"].observations == 4
    facts = ours.tracker.history.facts(ours.tracker.history.select((0, 300), None))
    assert not [f for f in facts if any(name.startswith("robot1/") for name in f.evidence)]
    with pytest.raises(InvalidInputError, match="no memory of 'robot1' was merged"):
        unmerge(ours.tracker, "robot1")


def test_the_same_memory_is_not_merged_twice(ours, other):
    merge_from(ours.tracker, other, "robot1")
    with pytest.raises(InvalidInputError, match="'robot1' is merged already"):
        merge_from(ours.tracker, other, "robot1")


def test_memories_that_share_nothing_need_a_transform(other):
    stranger = GraphMemory(encoder=WordEncoder())
    watch(stranger, {"white sofa": (0.5, 0.0, 0.02)})
    with pytest.raises(InvalidInputError, match=r"0 objects agree .* give a transform"):
        merge_from(stranger.tracker, other, "robot1")
    report = merge_from(stranger.tracker, other, "robot1", PlaneTransform(YAW, SHIFT))
    assert len(report.added) == 6
    np.testing.assert_allclose(where(stranger, "red cube")[:2], SHARED["red cube"], atol=0.02)


def home(folder, things):
    """Return a memory of ``things``, (label, place) pairs that no camera looks at."""
    memory = GraphMemory(GraphStore(folder), encoder=WordEncoder())
    objects = tuple(seen(label, place, color=(0.5, 0.4, 0.3)) for label, place in things)
    for stamp in range(5):
        memory.update(SceneObservation(stamp, "front", objects))
    memory.commit()
    return memory


def scattered(labels, rng, size=5.0):
    return [(label, (*rng.uniform(0, size, 2), 0.8)) for label in labels]


UNIQUE = [f"thing{number}" for number in range(12)]


@pytest.mark.parametrize(("labels", "seeds"), [(UNIQUE, (5, 17, 27, 37)), (UNIQUE * 2, (1, 3, 5, 7))],
                         ids=["one of each", "two of each"])  # fmt: skip
def test_homes_that_have_only_the_kinds_of_things_in_common_do_not_overlap(labels, seeds, tmp_path):
    """Three of many alike pairs always lie within 20 cm of each other after some transform."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        ours, theirs = (home(tmp_path / f"{seed}{name}", scattered(labels, rng)) for name in "ab")
        with pytest.raises(InvalidInputError, match="give a transform"):
            merge_from(ours.tracker, read_snapshot(tmp_path / f"{seed}b"), "robot1")
        assert partition(ours.tracker, "robot1") == []
        theirs.store.close()
        ours.store.close()


def test_three_of_many_things_that_agree_by_chance_are_named(tmp_path):
    """Three lie alike in both homes, to the millimetre; the nine others are elsewhere."""
    rng = np.random.default_rng(0)
    alike = scattered(UNIQUE[:3], rng)
    ours = home(tmp_path / "a", alike + scattered(UNIQUE[3:], rng))
    home(tmp_path / "b", alike + scattered(UNIQUE[3:], rng))
    with pytest.raises(InvalidInputError, match="do not overlap: 3 of the 12 objects that both know once"):
        merge_from(ours.tracker, read_snapshot(tmp_path / "b"), "robot1")


def test_what_may_lie_in_two_ways_needs_a_transform(tmp_path):
    """Four chairs around a table: a quarter turn brings each onto the next."""
    chairs = [("chair", (x, y, 0.8)) for x, y in ((1, 0), (0, 1), (-1, 0), (0, -1))]
    ours = home(tmp_path / "a", chairs)
    home(tmp_path / "b", chairs)
    with pytest.raises(InvalidInputError, match="may lie in two ways: 4 objects agree on one, 4 on another; give a"):
        merge_from(ours.tracker, read_snapshot(tmp_path / "b"), "robot1")
    report = merge_from(ours.tracker, read_snapshot(tmp_path / "b"), "robot1", PlaneTransform(0.0, np.zeros(3)))
    assert report.transform.yaw == pytest.approx(0.0, abs=0.01) and len(report.matched) == 4


def test_one_room_in_common_is_enough_though_some_things_moved_and_some_are_alike(tmp_path):
    """Six things and four chairs in the common room, two of them moved; each robot knows five more of another room."""
    rng = np.random.default_rng(1)
    room = scattered([*UNIQUE[:6], *["chair"] * 4], rng)
    moved = scattered(UNIQUE[:2], rng)
    ours = home(tmp_path / "a", room + [(f"a{label}", place) for label, place in scattered(UNIQUE[:5], rng)])
    rest = [(f"b{label}", place) for label, place in scattered(UNIQUE[:5], rng)]
    home(tmp_path / "b", [(label, theirs(place[:2], rng)) for label, place in moved + room[2:] + rest])
    report = merge_from(ours.tracker, read_snapshot(tmp_path / "b"), "robot1")
    assert report.transform.yaw == pytest.approx(YAW, abs=0.02) and len(report.matched) == 8


# -- taken out again, whatever came in between -----------------------------------------------------------------------


def shelf(folder, count, start=0, apart_m=0.5):
    """Return a memory of ``count`` things in a row, each of its own name."""
    memory = GraphMemory(GraphStore(folder), encoder=WordEncoder())
    objects = tuple(
        seen(f"thing{i}", (i * apart_m, (i * i % 7) * 0.3, 0.8), color=(0.5, 0.4, 0.3)) for i in range(count)
    )
    for stamp in range(start, start + 4):
        memory.update(SceneObservation(stamp, "front", objects))
    memory.commit()
    return memory


def of_robot1(memory):
    """Return the ids of the objects that are told of by what robot 1 saw."""
    history = memory.tracker.history
    facts = [fact for fact in history.facts(np.flatnonzero(history.used)) if fact.believed_to == FOREVER]
    told = {fact.node_id for fact in facts if any(name.startswith("robot1/") for name in fact.evidence)}
    return told | {node.id for node in objects(memory).values() if node.last_evidence.startswith("robot1/")}


def test_more_shared_objects_than_merges_are_kept_all_come_apart(tmp_path):
    ours, count = shelf(tmp_path / "a", 210), 210
    before = objects(ours)
    shelf(tmp_path / "b", count, start=100)
    assert len(merge_from(ours.tracker, read_snapshot(tmp_path / "b"), "robot1").matched) == count
    assert unmerge(ours.tracker, "robot1") == count
    assert_same(objects(ours), before)
    assert of_robot1(ours) == set()


def test_ordinary_merges_after_it_and_a_small_budget_do_not_end_that_it_can_be_taken_out(tmp_path):
    ours = shelf(tmp_path / "a", 6)
    shelf(tmp_path / "b", 6, start=100)
    merge_from(ours.tracker, read_snapshot(tmp_path / "b"), "robot1")
    toys = tuple(seen("red toy", (i * 0.5, 9.0, 0.8)) for i in range(203))
    ours.update(SceneObservation(200, "front", toys))
    first, *others = [node.id for node in objects(ours).values() if node.label == "red toy"]
    for other in others:
        join(ours.tracker, first, other, "me")
    numbers = [merge.number for merge in ours.tracker.merges]
    assert len(numbers) == 206 and numbers[5:8] == [6, 9, 10]  # two hundred of the 202 ordinary ones
    ours.tracker.merges.shrink(0)
    ours.commit()
    ours.store.close()
    ours = GraphMemory(GraphStore(tmp_path / "a"), encoder=WordEncoder())
    assert [merge.number for merge in ours.tracker.merges] == [1, 2, 3, 4, 5, 6]
    assert unmerge(ours.tracker, "robot1") == 6
    assert of_robot1(ours) == set()
    more = [node.id for node in objects(ours).values() if node.label != "red toy"][:2]
    join(ours.tracker, *more, "me")
    ours.tracker.merges.shrink(0)  # what was taken out needs no merges any more
    assert list(ours.tracker.merges) == []
    ours.store.close()


def test_it_is_taken_out_of_what_took_a_shared_object_in_since(ours, other):
    """Two of ours turn out to be one, after the first of them had taken in what robot 1 knew."""
    watch(ours, {"white jar": (0.3, 0.0, 0.02)}, start=20)
    before = objects(ours)
    (jar,) = [node.id for node in before.values() if node.label == "white jar"]
    merge_from(ours.tracker, other, "robot1")
    join(ours.tracker, jar, "object_0001", "me")
    watch(ours, {"red cube": (0.5, 0.1, 0.02)}, start=300, times=2)
    number = ours.tracker.merges.standing()[-1].number
    ours.tracker.merges.shrink(0)
    unmerge(ours.tracker, "robot1")
    after = objects(ours)
    assert after.keys() == before.keys() - {"object_0001"} and of_robot1(ours) == set()
    assert after[jar].observations == 10  # four of each, and two since
    ours.tracker.undo_merge(number, ours.tracker.stamp_ns, "me")
    assert of_robot1(ours) == set()
    assert {i: objects(ours)[i].observations for i in (jar, "object_0001")} == {jar: 4, "object_0001": 6}


def test_of_two_robots_each_is_taken_out_alone_whoever_came_first(ours, other, tmp_path):
    rng = np.random.default_rng(3)
    before, facts = objects(ours), believed(ours, "object_0001")
    spots = {label: theirs(place, rng) for label, place in SHARED.items()}
    second = GraphMemory(GraphStore(tmp_path / "second"), encoder=WordEncoder())
    watch(second, spots, start=500)
    second.commit()
    merge_from(ours.tracker, other, "robot1")
    merge_from(ours.tracker, read_snapshot(tmp_path / "second"), "robot2")
    unmerge(ours.tracker, "robot1")
    assert of_robot1(ours) == set()
    assert objects(ours)["object_0001"].observations == 8  # four of ours, four of robot 2
    unmerge(ours.tracker, "robot2")
    assert_same(objects(ours), before)
    assert believed(ours, "object_0001") == facts


# -- in the hand of another robot ------------------------------------------------------------------------------------

SECOND = 10**9
DOWN = np.array([0.0, 1.0, 0.0, 0.0])


@pytest.fixture
def holding(ours, tmp_path):
    """Return our memory after it took in that of robot_b, which holds a blue spoon; both looked a second ago."""
    rng = np.random.default_rng(0)
    memory = GraphMemory(GraphStore(tmp_path), encoder=WordEncoder())
    spots = {label: theirs(place, rng) for label, place in SHARED.items()} | {"blue spoon": theirs((0.45, -0.2), rng)}
    watch(memory, spots, start=100)
    for stamp, closed in ((104, 0.0), (105, 0.5)):
        hand = Hand(Pose(spots["blue spoon"], DOWN), closed, "robot_b")
        memory.update(replace(view([], stamp, depth=0.5), hand=hand))
    memory.commit()
    merge_from(ours.tracker, read_snapshot(tmp_path), "robot1")
    assert "held by robot_b" in ours.query(FindObject("blue spoon")).text
    return ours


def table_of_ours(stamp_ns, depth):
    objects_there = [seen(label, (*place, 0.02)) for label, place in SHARED.items()]
    return view(objects_there, stamp_ns, depth=depth)


def held(memory):
    return [one for one in memory.graph().edges if one.relation == "held_by"]


def test_what_another_robot_held_is_gone_once_its_place_is_seen_empty(holding):
    for stamp in range(SECOND, 20 * SECOND, SECOND):
        holding.update(table_of_ours(stamp, depth=1.0))
    assert held(holding) == [] and holding.tracker.grasps.pairs() == []
    told = holding.query(FindObject("blue spoon")).text
    assert "is gone" in told and "held" not in told


def test_what_another_robot_held_is_not_told_to_be_in_its_hand_after_ten_minutes_without_word(holding):
    holding.update(table_of_ours(599 * SECOND, depth=0.5))  # hidden: nobody can tell
    assert len(held(holding)) == 1
    holding.update(table_of_ours(601 * SECOND, depth=0.5))
    assert held(holding) == []
    assert "held" not in holding.query(FindObject("blue spoon")).text


def test_what_our_own_hand_holds_is_hidden_by_its_fingers_also_between_two_words_of_it(ours):
    spot = (0.5, 0.1, 0.02)
    for stamp, closed in ((100, 0.0), (101, 0.5)):
        ours.update(replace(table_of_ours(stamp, depth=0.5), hand=Hand(Pose(np.array(spot), DOWN), closed, "robot0")))
    others = [seen(label, (*place, 0.02)) for label, place in SHARED.items() if label != "red cube"]
    for stamp in range(102, 120):
        ours.update(view(others, stamp))  # as of a camera without a hand in its frames, which sees past the cube
    assert [edge.source for edge in held(ours)] == ["object_0001"]


# -- what things rest on ---------------------------------------------------------------------------------------------


def memory_of(folder, spots):
    """Return what a robot has stored that saw ``spots`` (label -> place) from 100 ns on."""
    memory = GraphMemory(GraphStore(folder), encoder=WordEncoder())
    watch(memory, spots, start=100)
    memory.commit()
    return read_snapshot(folder)


def dangling(tracker):
    """Return the facts ever believed that say of an object that it is on, in or held by what is no node."""
    history = tracker.history
    facts = history.facts(np.flatnonzero(history.used))
    return [fact for fact in facts if bool(fact.relation) != (fact.target in tracker.columns)]


def test_what_rests_on_their_table_rests_on_ours(ours, other):
    merge_from(ours.tracker, other, "robot1")
    assert dangling(ours.tracker) == []
    (table,) = ours.tracker.scene.nodes("place")
    for label in ("red cube", "blue spoon"):  # known to both, known to them alone
        assert "on the table" in ours.query(FindObject(label)).text
        then = ours.query(AtTime(FindObject(label), (101, 101)))
        assert "on the table" in then.text
        (fact,) = ours.tracker.history.facts(ours.tracker.history.select((101, 101), None, [then.nodes[0].id]))
        assert (fact.relation, fact.target) == ("on", table.id)
    assert {edge.target for edge in ours.graph(101).edges} <= {node.id for node in ours.graph(101).nodes}


def test_what_rests_on_an_object_known_to_both_rests_on_ours(ours, tmp_path):
    rng = np.random.default_rng(0)
    spots = {label: theirs(place, rng) for label, place in SHARED.items()}
    spots["blue spoon"] = spots["red plate"] + (0.0, 0.0, 0.04)  # on it: both are 4 cm high
    spots["blue pen"] = theirs((0.45, -0.3), rng)
    spots["green lid"] = spots["blue pen"] + (0.0, 0.0, 0.04)
    merge_from(ours.tracker, memory_of(tmp_path, spots), "robot1")
    assert dangling(ours.tracker) == []
    plate, pen = (ours.query(FindObject(label)).nodes[0].id for label in ("red plate", "blue pen"))
    assert (plate.partition("_")[0], pen.partition("_")[0]) == ("object", "robot1/object")
    for label, below in (("blue spoon", plate), ("green lid", pen)):
        (node,) = ours.query(Relation("on", below, text=label)).nodes
        (fact,) = ours.tracker.history.facts([ours.tracker.history.current(node.id)])
        assert (fact.relation, fact.target) == ("on", below)


def test_what_the_other_robot_holds_is_held_by_it_and_a_tray_that_is_no_more_is_left_out(ours, tmp_path):
    """Its hand took the spoon; the tray that the pen lay on was forgotten: its facts still name it."""
    rng = np.random.default_rng(0)
    memory = GraphMemory(GraphStore(tmp_path), encoder=WordEncoder())
    spots = {label: theirs(place, rng) for label, place in SHARED.items()}
    spots |= {"blue spoon": theirs((0.45, -0.2), rng), "blue tray": theirs((0.3, -0.3), rng)}
    spots["red pen"] = spots["blue tray"] + (0.0, 0.0, 0.04)
    watch(memory, spots, start=100)
    for stamp, closed in ((104, 0.0), (105, 0.5)):
        hand = Hand(Pose(spots["blue spoon"], np.array([0.0, 1.0, 0.0, 0.0])), closed, "robot_b")
        memory.update(replace(view([], stamp, depth=0.5), hand=hand))
    (tray,) = [node.id for node in memory.graph().nodes if node.label == "blue tray"]
    memory.tracker.expired.add(tray)
    memory.update(view([], 106, depth=0.5))
    memory.commit()
    merge_from(ours.tracker, read_snapshot(tmp_path), "robot1")
    assert dangling(ours.tracker) == []
    held = ours.query(FindObject("blue spoon"))
    assert "held by robot_b" in held.text
    pen = ours.query(AtTime(FindObject("red pen"), (101, 101)))
    assert "z 0.06 m; I saw it there" in pen.text  # on nothing that is known here


@pytest.mark.parametrize("place", [known_place("place", "bench", (0.5, 0.0, -0.02), (1.2, 1.6, 0.04)),
                                   known_place("place", "table", (0.5, 0.0, -0.52), (1.2, 1.6, 0.04)),
                                   known_place("place", "table", (5.5, 0.0, -0.02), (1.2, 1.6, 0.04)),
                                   known_place("room", "table", (0.5, 0.0, -0.02), (1.2, 1.6, 0.04))],
                         ids=["another label", "another height", "elsewhere", "another layer"])  # fmt: skip
def test_a_place_that_we_do_not_know_is_left_out(other, place):
    stranger = GraphMemory(encoder=WordEncoder(), places=[place])
    merge_from(stranger.tracker, other, "robot1", PlaneTransform(YAW, SHIFT))
    facts = stranger.tracker.history.facts(np.flatnonzero(stranger.tracker.history.used))
    assert len(facts) == 6 and {(fact.relation, fact.target) for fact in facts} == {("", "")}
    assert "robot1/" not in stranger.query(FindObject("blue spoon")).text


def test_of_two_tables_of_ours_the_nearer_one_is_theirs(other):
    """Their table lies around (0.71, 0.08) here, 1.2 x 1.6 m turned by 0.6 rad: it reaches into both."""
    tables = [known_place("place", "table", (x, 0.0, -0.02), (1.0, 1.6, 0.04)) for x in (-0.4, 0.7)]
    memory = GraphMemory(encoder=WordEncoder(), places=tables)
    merge_from(memory.tracker, other, "robot1", PlaneTransform(YAW, SHIFT))
    facts = memory.tracker.history.facts(np.flatnonzero(memory.tracker.history.used))
    assert {fact.target for fact in facts} == {"place_0002"}


def test_contradictions_among_many_alike_are_all_told(tmp_path):
    """Eighty cups of ours and eighty of theirs 5 m beside them: each may be each."""
    memory, other = GraphMemory(encoder=WordEncoder()), GraphMemory(GraphStore(tmp_path), encoder=WordEncoder())
    for robot, y in ((memory, 0.0), (other, 5.0)):
        robot.update(view([seen("red cup", (float(i), y, 0.02)) for i in range(80)], depth=0.5))
    other.commit()
    report = merge_from(memory.tracker, read_snapshot(tmp_path), "robot1", PlaneTransform(0.0, np.zeros(3)))
    assert len(report.added) == 80 and len(report.conflicts) == 80 * 80
    one = report.conflicts[81]
    assert one.words == "object_0002 and robot1/object_0002: one red cup that was moved, or two of them"


# -- one object or two -----------------------------------------------------------------------------------------------


def undecided(memory):
    return memory.tracker.conflicts.undecided(memory.tracker.columns.row_of)


def objects(memory):
    return {node.id: node for node in memory.graph().nodes if node.layer == "object"}


def believed(memory, node_id):
    """Return label, place, beginning and last sight of what is believed of ``node_id`` today."""
    facts = [fact for fact in memory.tracker.history.of(node_id) if fact.believed_to == FOREVER]
    return [(fact.label, *fact.place.tolist(), fact.valid_from, fact.last_sight) for fact in facts]


def assert_same(after, before):
    assert after.keys() == before.keys()
    for node_id, node in before.items():
        now = after[node_id]
        np.testing.assert_array_equal(now.pose.position, node.pose.position, err_msg=node_id)
        assert (now.label, now.observations, now.last_seen_ns) == (node.label, node.observations, node.last_seen_ns)


def test_a_conflict_is_kept_over_a_restart_and_goes_with_the_partition(other, tmp_path):
    def opened():
        return GraphMemory(GraphStore(tmp_path / "ours"), encoder=WordEncoder())

    memory = opened()
    watch(memory, {label: (*place, 0.02) for label, place in SHARED.items()} | {"green kettle": (0.3, -0.3, 0.02)})
    memories.merge_from(memory, other, "robot1")
    for _ in range(2):
        memory.commit()
        memory.store.close()
        memory = opened()
        assert undecided(memory) == [KETTLES]
    memories.unmerge(memory, "robot1")
    memory.commit()
    memory.store.close()
    memory = opened()
    assert undecided(memory) == [] and "conflicts" not in memory.restored
    memories.merge_from(memory, other, "robot1")
    assert undecided(memory) == [KETTLES]
    memory.store.close()


def test_another_name_for_the_thing_at_this_place_is_a_conflict_of_its_own_kind(ours, tmp_path):
    rng = np.random.default_rng(0)
    spots = {label: theirs(place, rng) for label, place in SHARED.items()} | {"red mug": theirs((0.3, -0.3), rng)}
    merge_from(ours.tracker, memory_of(tmp_path, spots), "robot1")
    (one,) = undecided(ours)
    assert (one.kind, one.ours, one.theirs) == ("named", "object_0005", "robot1/object_0005")
    assert one.words == "object_0005 is a green kettle to us, robot1/object_0005 at its place a red mug to them"


def test_a_conflict_goes_with_either_of_its_nodes(ours, other):
    merge_from(ours.tracker, other, "robot1")
    ours.tracker.expired.add("object_0005")
    ours.update(view([], 200, depth=0.5))
    assert "object_0005" not in objects(ours) and undecided(ours) == []


def test_two_objects_in_conflict_are_joined_and_what_is_undone_is_undecided_again(ours, other):
    merge_from(ours.tracker, other, "robot1")
    before, facts = objects(ours), believed(ours, "object_0005")
    number, _ = join(ours.tracker, "object_0005", "robot1/object_0006", "me")
    (kettle,) = [node for node in objects(ours).values() if node.label == "green kettle"]
    assert (kettle.id, kettle.observations) == ("object_0005", 8)
    np.testing.assert_array_equal(kettle.pose.position, before["robot1/object_0006"].pose.position)  # seen there last
    assert undecided(ours) == []
    ours.tracker.undo_merge(number, ours.tracker.stamp_ns, "me")
    assert_same(objects(ours), before)
    assert believed(ours, "object_0005") == facts
    assert undecided(ours) == [KETTLES]


@pytest.mark.parametrize("kept", ["object_0005", "robot1/object_0006"])
@pytest.mark.parametrize("again", [(), range(200, 204)], ids=["they saw it last", "we saw it last"])
def test_an_undone_join_leaves_both_as_they_were_whoever_saw_it_last(ours, other, kept, again):
    merge_from(ours.tracker, other, "robot1")
    for stamp in again:
        ours.update(view([seen("green kettle", (0.3, -0.3, 0.02))], stamp, depth=0.5))
    pair = ["object_0005", "robot1/object_0006"]
    gone = pair[pair.index(kept) - 1]
    before, facts = objects(ours), {node_id: believed(ours, node_id)[0] for node_id in pair}
    ours.tracker.undo_merge(join(ours.tracker, kept, gone, "me")[0], ours.tracker.stamp_ns, "me")
    number, _ = join(ours.tracker, kept, gone, "me")
    newer = "object_0005" if again else "robot1/object_0006"
    np.testing.assert_array_equal(objects(ours)[kept].pose.position, before[newer].pose.position)
    ours.tracker.undo_merge(number, ours.tracker.stamp_ns, "me")
    assert_same(objects(ours), before)
    assert {node_id: believed(ours, node_id)[0] for node_id in pair} == facts


def test_joined_under_two_names_each_gets_its_own_back(ours, tmp_path):
    rng = np.random.default_rng(0)
    watch(ours, {"green kettle": (0.3, -0.3, 0.02)}, start=10)  # eight sights of ours against four
    spots = {label: theirs(place, rng) for label, place in SHARED.items()} | {"red mug": theirs((0.3, -0.3), rng)}
    merge_from(ours.tracker, memory_of(tmp_path, spots), "robot1")
    number, _ = join(ours.tracker, "object_0005", "robot1/object_0005", "me")
    assert objects(ours)["object_0005"].label == "green kettle"
    ours.tracker.undo_merge(number, ours.tracker.stamp_ns, "me")
    assert [objects(ours)[i].label for i in ("object_0005", "robot1/object_0005")] == ["green kettle", "red mug"]


@pytest.mark.parametrize("pair", [("object_0005", "robot1/object_0006"), ("robot1/object_0006", "object_0005")],
                         ids=["theirs into ours", "ours into theirs"])  # fmt: skip
def test_what_was_joined_comes_apart_with_the_partition(ours, other, pair):
    before = objects(ours)
    merge_from(ours.tracker, other, "robot1")
    join(ours.tracker, *pair, "me")
    assert unmerge(ours.tracker, "robot1") == 6
    assert_same(objects(ours), before)
    facts = ours.tracker.history.facts(ours.tracker.history.select((0, 300), None))
    assert not [fact for fact in facts if any(name.startswith("robot1/") for name in fact.evidence)]
    assert ours.tracker.merges.standing() == [] and undecided(ours) == []
    merge_from(ours.tracker, other, "robot1")
    assert undecided(ours) == [KETTLES]


def test_a_conflict_that_is_settled_as_two_is_not_listed_any_more(ours, other):
    merge_from(ours.tracker, other, "robot1")
    keep_apart(ours.tracker, "robot1/object_0006", "object_0005")
    assert undecided(ours) == [] and {"object_0005", "robot1/object_0006"} <= objects(ours).keys()
    with pytest.raises(InvalidInputError, match=r"no conflict between object_0005 and robot1/.*: \(none\)"):
        keep_apart(ours.tracker, "object_0005", "robot1/object_0006")


def test_only_two_objects_that_are_there_are_joined_or_kept_apart(ours, other):
    merge_from(ours.tracker, other, "robot1")
    for decide in (lambda *pair: join(ours.tracker, *pair, "me"), lambda *pair: keep_apart(ours.tracker, *pair)):
        with pytest.raises(UnknownNameError, match="unknown object 'object_0009'; did you mean 'object_000"):
            decide("object_0005", "object_0009")
        with pytest.raises(InvalidInputError, match="object 'object_0005' is given twice, expected two objects"):
            decide("object_0005", "object_0005")
        with pytest.raises(InvalidInputError, match="node 'place_0001': layer 'place', valid: object"):
            decide("object_0005", "place_0001")
    with pytest.raises(InvalidInputError, match="of either of them: object_0005 and robot1/object_0006"):
        keep_apart(ours.tracker, "object_0005", "object_0001")
    assert undecided(ours) == [KETTLES]


def test_what_lay_on_a_tray_of_theirs_is_told_without_it_once_that_is_taken_out(ours, tmp_path):
    rng = np.random.default_rng(0)
    spots = {label: theirs(place, rng) for label, place in SHARED.items()} | {"blue tray": theirs((0.3, -0.1), rng)}
    merge_from(ours.tracker, memory_of(tmp_path, spots), "robot1")
    watch(ours, {"red cup": (0.3, -0.1, 0.06)}, start=200)
    assert "on the blue tray" in ours.query(FindObject("red cup")).text
    unmerge(ours.tracker, "robot1")
    for when in (None, (202, 202)):
        told = ours.query(FindObject("red cup") if when is None else AtTime(FindObject("red cup"), when)).text
        assert "z 0.06 m; I s" in told and "robot1" not in told
