"""Objects over time: seen, hidden, gone, moved, back after a restart."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from engram.core.errors import InvalidInputError
from engram.core.questions import AtTime, FindObject, Relation
from engram.core.types import DetectedObject, Pose, SceneObservation
from engram.memory.graph import tracker
from engram.memory.graph.context import ContextConfig
from engram.memory.graph.tracker_config import TrackerConfig
from engram.memory.graph_memory import GraphMemory, GraphMemoryConfig
from engram.memory.storage.store import GraphStore
from engram.perception.embedding import default_text_encoder
from tests.contracts.memory import MemoryContract
from tests.memory.scenes import CAMERA, IDENTITY, INTRINSICS, WordEncoder, seen, view

HERE, THERE = (0.5, 0.1, 0.02), (0.65, -0.15, 0.02)


class TestInRam(MemoryContract):
    def make(self):
        return GraphMemory(encoder=WordEncoder())

    def test_without_a_store_nothing_survives_a_crash_and_commit_says_so(self, memory):
        memory.update(view([seen("red cube", HERE)]))
        assert memory.commit() == 0


class TestOnDisk(MemoryContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder, self.made = tmp_path, 0

    def make(self):
        self.made += 1
        return GraphMemory(GraphStore(self.folder / str(self.made)), encoder=WordEncoder())


@pytest.fixture
def memory():
    """A memory that saw a red cube five times."""
    memory = GraphMemory(encoder=WordEncoder())
    for stamp in range(5):
        memory.update(view([seen("red cube", HERE)], stamp))
    return memory


def cube(memory):
    return memory.query(FindObject("red cube")).nodes[0]


def watch(memory, objects, times=1, start=100, **how):
    for stamp in range(start, start + times):
        update = memory.update(view(objects, stamp, **how))
    return update


def test_belief_after_one_sight_follows_bayes():
    """Odds of 1 to 9, score 2 / 3: odds ratio 8 ** (2 / 3) = 4, so odds 4 / 9 and belief 4 / 13."""
    memory = GraphMemory(encoder=WordEncoder())
    memory.update(view([seen("red cube", HERE, score=2 / 3)]))
    assert cube(memory).belief == pytest.approx(4 / 13)


def test_looked_and_not_there_loses_belief_step_by_step_until_absent(memory):
    """0.99 = odds 99; each look through its place times 0.05: 4.95, 0.2475, below 0.2 / 0.8 = 0.25."""
    watch(memory, [])
    assert cube(memory).belief == pytest.approx(4.95 / 5.95, rel=1e-6)
    assert cube(memory).state == "visible"
    watch(memory, [])
    assert cube(memory).state == "absent"
    assert cube(memory).last_seen_ns == 4  # a miss is no sight


def test_an_absent_object_is_kept_without_relations(memory):
    assert ("on", "place_0001") in {(e.relation, e.target) for e in memory.graph().edges}
    watch(memory, [], times=5)
    assert memory.graph().edges == ()
    assert "red cube" in {n.label for n in memory.graph().nodes}


def test_occluded_is_not_absent(memory):
    belief = cube(memory).belief
    watch(memory, [], times=20, depth=0.5)  # something stands 0.5 m under the camera, the cube is at 0.98
    assert (cube(memory).state, cube(memory).belief) == ("occluded", belief)


def test_out_of_view_is_not_absent(memory):
    belief = cube(memory).belief
    sideways = SceneObservation(
        200, "front", (), Pose(CAMERA.position + np.array([2.0, 0, 0]), CAMERA.quaternion), INTRINSICS, (128, 128),
        np.ones((32, 32), np.float32),
    )  # fmt: skip
    memory.update(sideways)
    assert (cube(memory).state, cube(memory).belief) == ("unseen", belief)


def test_a_camera_that_does_not_look_leaves_the_state_of_the_one_that_does(memory):
    watch(memory, [], depth=0.5, camera="wrist")
    assert cube(memory).state == "visible"


def test_one_that_is_back_at_its_place_is_the_same_object(memory):
    watch(memory, [], times=6)
    watch(memory, [seen("red cube", HERE)])
    assert (cube(memory).id, cube(memory).state, cube(memory).observations) == ("object_0001", "visible", 6)


def test_moved_in_view_keeps_its_identity(memory):
    """One sight may be a confusion of names; the third settles that it is the one that is gone from its place."""
    first = watch(memory, [seen("red cube", THERE)])
    assert [event.kind for event in first.events] == ["new"]
    update = watch(memory, [seen("red cube", THERE)], times=2, start=101)
    assert [event.kind for event in update.events] == ["merged", "returned"]
    assert [n.id for n in memory.graph().nodes if n.layer == "object"] == ["object_0001"]
    np.testing.assert_allclose(cube(memory).pose.position, THERE, atol=1e-9)


def test_another_colour_elsewhere_is_another_object(memory):
    update = watch(memory, [seen("blue cube", THERE)])
    assert {n.id for n in update.nodes} == {"object_0001", "object_0002"}


def test_a_second_one_of_its_kind_is_new_while_the_first_is_still_there(memory):
    update = watch(memory, [seen("red cube", HERE), seen("red cube", THERE)])
    assert {n.id for n in update.nodes} == {"object_0001", "object_0002"}


def test_carried_while_its_old_place_was_hidden_keeps_its_identity_once_that_place_is_seen_empty(memory):
    watch(memory, [seen("red cube", THERE)], times=3, depth=0.5)  # old place hidden: cannot be told yet
    assert len(memory.query(FindObject("red cube")).nodes) == 2
    assert cube(memory).id == "object_0002"  # the other one is in doubt: 0.5, then 0.05 to 1
    update = watch(memory, [seen("red cube", THERE)], start=200)
    assert update.deleted_nodes == ("object_0002",)
    assert [event.kind for event in update.events] == ["merged", "moved"]
    assert (cube(memory).id, cube(memory).state) == ("object_0001", "visible")
    np.testing.assert_allclose(cube(memory).pose.position, THERE, atol=1e-9)


def test_followed_while_it_is_carried_through_the_view(memory):
    for step in range(20):  # 0.3 m/s at 10 Hz
        watch(memory, [seen("red cube", (0.5, 0.1 - 0.03 * step, 0.2))], start=100 + step)
    assert len(memory.query(FindObject()).nodes) == 1
    np.testing.assert_allclose(cube(memory).pose.position, (0.5, -0.47, 0.2), atol=0.01)


def test_a_false_detection_disappears_and_the_delta_says_so(memory):
    watch(memory, [seen("red cube", HERE), seen("green cup", THERE, score=0.3)])
    deleted = [watch(memory, [seen("red cube", HERE)]).deleted_nodes for _ in range(6)]
    assert sum(deleted, ()) == ("object_0002",)


def test_ids_are_never_used_twice(memory):
    watch(memory, [seen("red cube", HERE), seen("green cup", THERE)])
    watch(memory, [seen("red cube", HERE)], times=6, start=200)
    update = watch(memory, [seen("red cube", HERE), seen("blue cup", THERE)], start=300)
    assert update.nodes[-1].id == "object_0003"


def test_a_split_detection_is_no_second_object(memory):
    watch(memory, [seen("red cube", HERE), seen("red cube", (0.51, 0.105, 0.02))])
    assert len(memory.query(FindObject()).nodes) == 1


WHITE, GRAY = np.full(3, 0.92), np.full(3, 0.52)


@pytest.mark.parametrize(
    ("below", "above"),
    [
        (("tray", (0.4, 0.3, 0.02), None), ("cup", (0.08, 0.08, 0.09), None)),
        (("plate", (0.26, 0.26, 0.02), WHITE), ("cup", (0.08, 0.08, 0.09), WHITE - 0.07)),
        (("gray board", (0.4, 0.3, 0.02), GRAY), ("gray screwdriver", (0.15, 0.03, 0.03), GRAY)),
        (("plate", (0.26, 0.26, 0.02), WHITE), ("bowl", (0.2, 0.2, 0.07), WHITE)),
    ],
    ids=["colours that nobody measured", "white on white", "gray on gray", "of about the same size"],
)
def test_a_thing_on_another_one_of_its_colour_is_an_object_of_its_own(below, above):
    def made(label, size, color, bottom):
        place = np.array([0.52, 0.02, bottom + size[2] / 2])
        return DetectedObject(label, Pose(place, IDENTITY), score=0.9, size=np.array(size), color=color)

    memory = GraphMemory(encoder=WordEncoder())
    under, upper = made(*below, 0.0), made(*above, below[1][2])
    watch(memory, [under], times=5)
    watch(memory, [under, upper], times=5, start=300)
    assert {node.label for node in memory.query(FindObject()).nodes} == {below[0], above[0]}
    told = memory.query(Relation("on", memory.query(FindObject(below[0])).nodes[0].id))
    assert [node.label for node in told.nodes] == [above[0]]


def test_another_name_for_what_lies_in_the_same_place_is_no_second_object():
    """As of a detector that gives one thing two names, or takes a part of it for another thing of about that size."""
    cup = seen("red cup", HERE, size=0.08)
    memory = GraphMemory(encoder=WordEncoder())
    watch(memory, [cup], times=5)
    watch(memory, [cup, seen("red mug", HERE, size=0.07, score=0.5)], times=5, start=300)
    assert [node.label for node in memory.query(FindObject()).nodes] == ["red cup"]


def test_the_label_most_often_seen_wins(memory):
    watch(memory, [seen("red cup", HERE)])
    assert cube(memory).label == "red cube"
    watch(memory, [seen("red cup", HERE)], times=10)
    assert memory.graph().nodes[-1].label == "red cup"


def test_belief_weighs_the_answer(memory):
    watch(memory, [seen("red cube", HERE), seen("red cube", THERE, color=(0.9, 0, 0))], times=5)
    watch(memory, [seen("red cube", THERE, color=(0.9, 0, 0))], start=200)
    answer = memory.query(FindObject("red cube"))
    assert [n.id for n in answer.nodes] == ["object_0002", "object_0001"]
    assert answer.scores[1] == pytest.approx(4.95 / 5.95, abs=1e-5)


def test_context_leaves_out_what_is_gone_and_keeps_the_best_k():
    memory = GraphMemory(config=GraphMemoryConfig(context=ContextConfig(tokens=2)), encoder=WordEncoder())
    objects = [seen(name, (0.3 + 0.12 * i, 0, 0.02)) for i, name in enumerate(("red cube", "green cup", "blue cup"))]
    for stamp in range(5):
        memory.update(view(objects, stamp))
    tokens = memory.context("put the red cube into the blue cup", 5)
    assert tokens.source_ids[0] == "object_0001" and tokens.source_ids[1] == "object_0003"
    watch(memory, objects[1:], times=10)
    assert "object_0001" not in memory.context("red cube", 200).source_ids


def test_a_context_begins_with_the_named_thing_also_where_another_was_seen_oftener():
    memory = GraphMemory(encoder=default_text_encoder())
    red, blue = seen("red button", (0.5, -0.2, 0.02)), seen("blue button", (0.5, 0.2, 0.02))
    watch(memory, [red], times=10)
    watch(memory, [red, blue], start=200, times=1)
    beliefs = {node.id: node.belief for node in memory.graph().nodes}
    assert beliefs["object_0001"] > 1.1 * beliefs["object_0002"]
    assert (
        memory.context("find the blue button under the cloth and lay the cube on it", 201).source_ids[0]
        == "object_0002"
    )


@pytest.mark.parametrize("frame", ["map", "camera"])
def test_another_frame_is_refused_by_name(memory, frame):
    scene = view([seen("red cube", HERE)])
    pose = Pose(CAMERA.position, CAMERA.quaternion, frame)
    bad = SceneObservation(1, "front", scene.objects, pose, INTRINSICS, (128, 128), scene.depth_grid)
    with pytest.raises(InvalidInputError, match=f"'front'.*{frame}.*valid: base_link"):
        memory.update(bad)


def test_bad_queries_are_refused(memory):
    with pytest.raises(InvalidInputError, match="limit: 0"):
        memory.query(FindObject(limit=0))
    with pytest.raises(InvalidInputError, match="radius_m: nan"):
        memory.query(FindObject(radius_m=float("nan")))
    with pytest.raises(InvalidInputError, match="place"):
        memory.query(FindObject(place=np.array([0.0, np.nan, 0.0])))


def test_a_restart_continues(tmp_path):
    store = GraphStore(tmp_path)
    memory = GraphMemory(store, encoder=WordEncoder())
    watch(memory, [seen("red cube", HERE), seen("blue cup", THERE)], times=4)
    assert memory.commit() == 4
    before = memory.graph()
    store.close()

    again = GraphMemory(GraphStore(tmp_path), encoder=WordEncoder())
    after = again.graph()
    assert (after.sequence, after.stamp_ns, after.edges) == (before.sequence, before.stamp_ns, before.edges)
    assert [n.id for n in after.nodes] == [n.id for n in before.nodes]
    for mine, theirs in zip(after.nodes, before.nodes, strict=True):
        np.testing.assert_array_equal(mine.pose.position, theirs.pose.position)
        np.testing.assert_array_equal(mine.embedding, theirs.embedding)
        np.testing.assert_array_equal(mine.position_covariance, theirs.position_covariance)
        assert (mine.belief, mine.observations, mine.state) == (theirs.belief, theirs.observations, theirs.state)
    update = again.update(view([seen("red cube", HERE), seen("green cup", (0.3, 0.2, 0.02))], 500))
    assert update.sequence == 5
    assert update.nodes[-1].id == "object_0003" or update.nodes[1].id == "object_0003"


def test_a_deleted_object_stays_deleted_after_a_restart(tmp_path):
    store = GraphStore(tmp_path)
    memory = GraphMemory(store, encoder=WordEncoder())
    watch(memory, [seen("red cube", HERE), seen("green cup", THERE)])
    memory.commit()
    watch(memory, [seen("red cube", HERE)], times=6)
    memory.commit()
    store.close()
    labels = {n.label for n in GraphMemory(GraphStore(tmp_path)).graph().nodes}
    assert labels == {"table", "red cube"}


def test_an_object_in_a_shadow_is_the_same_object():
    """The gripper's shadow halves the brightness of a blue cube: rgb (0.11, 0.32, 0.96) becomes (0.05, 0.17, 0.5)."""
    memory = GraphMemory(encoder=WordEncoder())
    for second, color in enumerate([(0.11, 0.32, 0.96)] * 3 + [(0.05, 0.17, 0.5)]):
        memory.update(view([seen("blue cube", HERE, color=color)], second * 10**9))
    (cube,) = (node for node in memory.graph().nodes if node.layer == "object")
    assert cube.observations == 4


def crowd(count, rng, label="box"):
    """Return ``count`` objects of one name, apart from each other in a small volume, which changes with ``rng``."""
    one = seen(label, HERE)
    places = rng.uniform((0.1, -0.4, 0.02), (0.9, 0.4, 0.3), (count, 3))
    return [replace(one, pose=Pose(place, one.pose.quaternion)) for place in places]


def test_a_frame_of_thousands_of_objects_costs_as_little_as_the_one_after_it():
    memory, rng = GraphMemory(encoder=WordEncoder()), np.random.default_rng(0)
    begin = time.process_time()
    for stamp in range(2):
        memory.update(view(crowd(3000, rng), stamp * 10**8))
    watch(memory, [seen("red cube", HERE)], times=2, start=10**9)
    assert time.process_time() - begin < 5.0
    assert len(memory.tracker.columns) < 600


def test_a_detector_that_reports_something_new_in_every_frame_fills_no_memory():
    """What was seen longest ago and never believed goes, with its facts; what was believed stays."""
    whole = GraphMemoryConfig(tracker=TrackerConfig(most_unsure=30))
    memory, rng = GraphMemory(config=whole, encoder=WordEncoder()), np.random.default_rng(1)
    watch(memory, [seen("red cube", HERE)], times=2, start=1)
    for number in range(8):
        found = [replace(one, label=f"box {number}") for one in crowd(20, rng)]
        memory.update(SceneObservation(100 + number, "detector", tuple(found)))
    labels = Counter(node.label for node in memory.graph().nodes)
    assert labels["red cube"] == 1 and labels["box 7"] == 20
    assert labels.total() - labels["table"] - 1 <= 30
    assert "box 0" not in labels and not memory.query(AtTime(FindObject("box 0"), (100, 100))).nodes


def test_of_very_many_known_objects_those_nearest_to_the_detections_are_compared(monkeypatch):
    memory = GraphMemory(encoder=WordEncoder())
    row = [seen("red cup", (0.2 + 0.05 * i, 0.2, 0.02)) for i in range(12)]
    watch(memory, row, times=3, start=1)
    monkeypatch.setattr(tracker, "_MOST_COMPARED", 4)
    unsure = replace(row[7], position_covariance=np.eye(3))  # it may be any of them
    update = memory.update(SceneObservation(10, "detector", (unsure,)))
    (cup,) = update.nodes
    np.testing.assert_allclose(cup.pose.position, row[7].pose.position, atol=0.01)
    assert cup.observations == 4 and len(memory.tracker.columns) == 13


def test_what_stands_in_another_one_s_place_is_told_alike_of_a_few_objects_at_once_and_of_all(monkeypatch):
    found = []
    for at_once in (4, 2048):
        memory = GraphMemory(encoder=WordEncoder())
        watch(memory, [seen("red cup", (0.2 + 0.05 * i, 0.2, 0.02)) for i in range(12)], times=3, start=1)
        with monkeypatch.context() as patched:
            patched.setattr(tracker, "_MOST_COMPARED", at_once)
            memory.update(view([seen("green box", (0.2 + 0.05 * i, 0.2, 0.02)) for i in (0, 5, 11)], 20, depth=0.98))
        found.append([(node.id, node.label, node.state, node.belief) for node in memory.graph().nodes])
    assert found[0] == found[1] and len({belief for *_, belief in found[0]}) > 2
