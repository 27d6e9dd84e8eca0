"""When surfaces were looked at, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from engram.memory.graph import coverage as module
from engram.memory.graph.containment import last_looks
from engram.memory.graph.coverage import Coverage
from engram.memory.graph.places import known_place
from engram.memory.graph_memory import GraphMemory
from engram.memory.query.language import parse
from engram.memory.storage.cells import pack
from engram.memory.storage.snapshots import read_snapshot
from engram.memory.storage.store import GraphStore
from tests.memory.scenes import WordEncoder, seen, view

PLACES = np.array([[0.1, 0.1, 0.1], [1.1, 0.1, 0.1], [1.1, 0.1, 0.6]])
"""Three cells of 25 cm."""


@pytest.mark.parametrize("at_once", [0, 200_000])
def test_the_newest_look_of_each_box_is_told_box_by_box_or_all_at_once(monkeypatch, at_once):
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
    coverage = Coverage()
    coverage.restore(dict(zip(pack(PLACES).tolist(), (30, 10, 20), strict=True)))
    low = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [3.0, 0.0, 0.0]])
    high = np.array([[0.2, 0.2, 0.2], [1.2, 0.2, 0.2], [1.2, 0.2, 0.7], [3.2, 0.2, 0.2]])
    np.testing.assert_array_equal(coverage.last_looks(low, high), [30, 10, 20, -1])
    assert [coverage.last_look(a, b) for a, b in zip(low, high, strict=True)] == [30, 10, 20, None]
    np.testing.assert_array_equal(Coverage().last_looks(low, high), [-1] * 4)


# -- a closed front ---------------------------------------------------------------------------------------------------

DRAWER = known_place("place", "drawer", (0.5, 0.0, 0.1), (0.3, 0.3, 0.2))
"""Seen from above: the camera is at z 1.0 m, the drawer's front at z 0.2 m (depth 0.8 m), its bottom at z 0."""
SECOND = 10**9
IN = parse("what is in the drawer", 100 * SECOND)


def ahead(depth_of_front):
    """Return a depth image (32, 32) m of a table at 1 m with a front of 0.3 x 0.3 m in its middle."""
    across, _ = np.meshgrid((np.arange(32) + 0.5) * 4 - 64, np.arange(32))
    half = 128 * 0.15 / depth_of_front
    return np.where((np.abs(across) < half) & (np.abs(across.T) < half), depth_of_front, 1.0).astype(np.float32)


@pytest.mark.parametrize("size", [(0.18, 0.02, 0.01), (0.04, 0.04, 0.04), (0.2, 0.15, 0.01)])
def test_what_lies_behind_a_closed_front_is_hidden_and_stays(size):
    """A spoon, a cube and a notebook 5 cm to 8 cm behind it: how long a thing is beside the ray says nothing."""
    memory = GraphMemory(encoder=WordEncoder(), places=(DRAWER,))
    thing = replace(seen("red thing", (0.5, 0.0, 0.13)), size=np.array(size))
    for second in range(4):
        memory.update(view([thing], second * SECOND, depth=ahead(0.87)))
    for second in range(4, 40):
        memory.update(view([], second * SECOND, depth=ahead(0.80)))
    (node,) = [node for node in memory.graph().nodes if node.layer == "object"]
    assert (node.state, node.label) == ("occluded", "red thing") and node.belief > 0.9


def test_a_thing_that_left_a_surface_is_missed_whatever_its_shape():
    memory = GraphMemory(encoder=WordEncoder())
    for second in range(8):
        spoon = replace(seen("red spoon", (0.5, 0.0, 0.005)), size=np.array((0.18, 0.02, 0.01)))
        memory.update(view([spoon] if second < 4 else [], second * SECOND, depth=1.02 if second >= 4 else 1.0))
    assert [node.state for node in memory.graph().nodes if node.layer == "object"] == ["absent"]


@pytest.mark.parametrize("yaw", [0.0, 0.25 * np.pi, 0.5 * np.pi])
def test_what_is_seen_before_a_turned_front_is_not_its_inside(yaw):
    """A chest of 0.8 x 0.1 m, closed: only what is beside it is seen; open, so is its bottom."""
    turn = Rotation.from_euler("z", yaw)
    chest = known_place("place", "chest", (0.5, 0.0, 0.1), (0.8, 0.1, 0.2))
    chest = replace(chest, pose=replace(chest.pose, quaternion=turn.as_quat(scalar_first=True)))
    memory = GraphMemory(encoder=WordEncoder(), places=(chest,))
    right, down = (np.stack(np.meshgrid(np.arange(32), np.arange(32))) + 0.5) * 4 - 64
    points = np.stack([right, -down, np.zeros_like(right)], axis=-1) * 0.8 / 128  # at the height of its lid
    away = np.abs(turn.inv().apply(points.reshape(-1, 3))).reshape(32, 32, 3)
    lid = (away[..., 0] < 0.41) & (away[..., 1] < 0.06)
    memory.update(view([], 1 * SECOND, depth=np.where(lid, 0.8, 1.0)))
    asked = parse("what is in the chest", 100 * SECOND)
    assert memory.query(asked).text == "I do not know: I have never looked into the chest."
    memory.update(view([], 2 * SECOND))
    assert memory.query(asked).text == "Nothing is in the chest."


def test_a_look_at_a_closed_front_is_no_look_into_it(tmp_path):
    store = GraphStore(tmp_path)
    memory = GraphMemory(store, encoder=WordEncoder(), places=(DRAWER,))
    memory.update(view([], 1 * SECOND, depth=ahead(0.80)))
    assert memory.query(IN).text == "I do not know: I have never looked into the drawer."
    memory.update(view([], 2 * SECOND, depth=1.0))  # open: its bottom is seen
    assert memory.query(IN).text == "Nothing is in the drawer."
    memory.update(view([seen("red cup", (0.8, 0.3, 0.02))], 50 * SECOND, depth=ahead(0.80)))
    rows = memory.tracker.columns.rows("place")
    assert last_looks(memory.tracker.columns, memory.tracker.coverage, rows).tolist() == [2 * SECOND]
    memory.commit()
    store.close()
    again = GraphMemory(stored=read_snapshot(tmp_path), encoder=WordEncoder())
    assert again.query(IN).text == "Nothing is in the drawer."


def test_a_late_frame_does_not_set_a_look_into_a_place_back():
    coverage = Coverage()
    for stamp in (20, 10):
        coverage.look_into(["drawer"], stamp)
    assert coverage.into == {"drawer": 20}
