"""Two robots, two frames, one memory: and apart again."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from engram.core.contracts import MemoryQuery
from engram.core.errors import InvalidInputError
from engram.memory.fleet import partition, take_in, take_out
from engram.memory.graph_memory import GraphMemory
from engram.memory.plane import PlaneTransform
from engram.memory.store import GraphStore, read_snapshot
from tests.memory.scenes import WordEncoder, seen, view

SHARED = {"red cube": (0.5, 0.1), "green cup": (0.65, -0.15), "blue bowl": (0.35, 0.2), "red plate": (0.6, 0.3)}
YAW, SHIFT = 0.6, np.array([0.3, -0.2, 0.0])
"""p_ours = turn(0.6 rad) p_theirs + (0.3, -0.2, 0)."""


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
    return memory.query(MemoryQuery(text=label)).nodes[0].pose.position


def test_the_frame_is_found_and_what_both_know_is_one(ours, other):
    report = take_in(ours.tracker, other, "robot1")
    assert report.transform.yaw == pytest.approx(YAW, abs=0.03)
    np.testing.assert_allclose(report.transform.shift, SHIFT, atol=0.03)
    assert len(report.matched) == 4 and report.transform.inliers == 4
    np.testing.assert_allclose(where(ours, "blue spoon")[:2], (0.45, -0.2), atol=0.02)
    assert partition(ours.tracker, "robot1") == ["robot1/object_0005", "robot1/object_0006"]
    (cube,) = [n for n in ours.graph().nodes if n.label == "red cube"]
    assert cube.observations == 8  # four of ours, four of theirs
    assert cube.last_evidence == "robot1/front@103"


def test_what_contradicts_itself_is_kept_apart_and_named(ours, other):
    report = take_in(ours.tracker, other, "robot1")
    assert report.conflicts == ("object_0005 and robot1/object_0006: one green kettle that was moved, or two of them",)
    assert len([n for n in ours.graph().nodes if n.label == "green kettle"]) == 2


def test_taken_out_again_nothing_of_theirs_is_left_and_ours_stays(ours, other):
    before = {n.id: n for n in ours.graph().nodes}
    take_in(ours.tracker, other, "robot1")
    watch(ours, {"red cube": (0.5, 0.12, 0.02)}, start=200)  # we go on looking
    assert take_out(ours.tracker, "robot1") == 6
    after = {n.id: n for n in ours.graph().nodes}
    assert set(after) == set(before)
    np.testing.assert_allclose(after["object_0001"].pose.position[:2], (0.5, 0.12), atol=0.01)
    np.testing.assert_array_equal(after["object_0002"].pose.position, before["object_0002"].pose.position)
    assert after["object_0002"].observations == 4
    facts = ours.tracker.history.facts(ours.tracker.history.select((0, 300), None))
    assert not [f for f in facts if any(name.startswith("robot1/") for name in f.evidence)]
    with pytest.raises(InvalidInputError, match="no memory of 'robot1' was merged"):
        take_out(ours.tracker, "robot1")


def test_the_same_memory_is_not_merged_twice(ours, other):
    take_in(ours.tracker, other, "robot1")
    with pytest.raises(InvalidInputError, match="'robot1' is merged already"):
        take_in(ours.tracker, other, "robot1")


def test_memories_that_share_nothing_need_a_transform(other):
    stranger = GraphMemory(encoder=WordEncoder())
    watch(stranger, {"white sofa": (0.5, 0.0, 0.02)})
    with pytest.raises(InvalidInputError, match=r"0 objects agree .* give a transform"):
        take_in(stranger.tracker, other, "robot1")
    report = take_in(stranger.tracker, other, "robot1", PlaneTransform(YAW, SHIFT))
    assert len(report.added) == 6
    np.testing.assert_allclose(where(stranger, "red cube")[:2], SHARED["red cube"], atol=0.02)
