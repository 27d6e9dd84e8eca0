"""The memory without ROS: opened by its folder, fed with hand-made observations, asked in words."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from engram.core.errors import InvalidInputError, StoreError, StoreLockedError
from engram.memory import DetectedObject, Pose, RobotMemory, SceneObservation
from tests.memory.scenes import WordEncoder, seen, view

SECOND = 10**9
CUP, BOWL = np.array([0.4, 0.1, 0.02]), np.array([0.6, -0.3, 0.03])


def minimal(label: str, place: np.ndarray, frame: str = "base_link") -> DetectedObject:
    """Return a detection of which only the label and the pose are known."""
    return DetectedObject(label, Pose(place, frame=frame))


def fill(memory: RobotMemory, frames: int = 8) -> None:
    """Show ``memory`` a cup and a bowl in ``frames`` observations, a second apart."""
    for second in range(1, frames + 1):
        objects = (minimal("red cup", CUP), minimal("blue bowl", BOWL))
        memory.update(SceneObservation(second * SECOND, objects=objects))


def test_a_label_and_a_pose_are_enough(tmp_path):
    with RobotMemory.open(tmp_path / "memory", encoder=WordEncoder()) as memory:
        fill(memory)
        objects = [node for node in memory.graph().nodes if node.layer == "object"]
        assert [node.label for node in objects] == ["red cup", "blue bowl"]
        assert all(node.belief > 0.95 and node.observations == 8 for node in objects)
        np.testing.assert_array_equal(objects[0].embedding, WordEncoder().encode(["red cup"])[0])
        answer = memory.ask("where is the red cup")
    assert "red cup" in answer.text and "x 0.40, y 0.10, z 0.02" in answer.text
    assert answer.confidence > 0.95 and answer.evidence[0].node_id == objects[0].id


def test_it_is_there_again_for_the_next_process_and_for_readers_beside_a_writer(tmp_path):
    with RobotMemory.open(tmp_path, encoder=WordEncoder()) as memory:
        fill(memory)
    with RobotMemory.open(tmp_path, encoder=WordEncoder()), pytest.raises(StoreLockedError):
        RobotMemory.open(tmp_path)
    with (
        RobotMemory.open(tmp_path, encoder=WordEncoder()) as writer,
        RobotMemory.open(tmp_path, read_only=True, encoder=WordEncoder()) as reader,
    ):
        assert "x 0.60, y -0.30" in reader.ask("where is the blue bowl").text
        for change in (lambda: reader.update(SceneObservation(1)), reader.commit):
            with pytest.raises(InvalidInputError, match="read_only"):
                change()
        assert writer.graph().sequence == reader.graph().sequence


def test_after_an_exception_what_was_not_committed_is_dropped(tmp_path):
    with pytest.raises(ValueError, match="half-way"), RobotMemory.open(tmp_path, encoder=WordEncoder()) as memory:
        fill(memory, 2)
        memory.commit()
        fill(memory, 8)
        raise ValueError("half-way")
    with RobotMemory.open(tmp_path, encoder=WordEncoder()) as memory:
        assert {node.observations for node in memory.graph().nodes} == {2}


def test_a_store_says_which_frame_it_is_in(tmp_path):
    with RobotMemory.open(tmp_path, frame="map", map_name="floor 2", encoder=WordEncoder()) as memory:
        memory.update(SceneObservation(SECOND, objects=(minimal("red cup", CUP, "map"),)))
    with RobotMemory.open(tmp_path, encoder=WordEncoder()) as memory:
        assert memory.scene.anchor.frame == "map" and memory.scene.anchor.map == "floor 2"
        with pytest.raises(InvalidInputError, match="base_link"):
            memory.update(SceneObservation(2 * SECOND, objects=(minimal("red cup", CUP),)))
    with pytest.raises(StoreError, match="base_link"):
        RobotMemory.open(tmp_path, frame="base_link")


def test_there_is_nothing_to_read_where_there_is_no_store(tmp_path):
    with pytest.raises(StoreError, match="no memory store"):
        RobotMemory.open(tmp_path / "nowhere", read_only=True)
    with pytest.raises(InvalidInputError, match="read_only"):
        RobotMemory.open(tmp_path, snapshot="ABC")


def test_an_unreported_size_or_colour_never_makes_two_objects_of_one(tmp_path):
    """A camera saw a large red cup; a detector without sizes and colours then sees the same cup."""
    with RobotMemory.open(tmp_path, encoder=WordEncoder()) as memory:
        for second in (1, 2, 3):
            memory.update(view([seen("red cup", CUP, size=0.3)], second * SECOND))
        for second in (4, 5, 6):
            memory.update(SceneObservation(second * SECOND, "other", (minimal("red cup", CUP),)))
        (node,) = [node for node in memory.graph().nodes if node.layer == "object"]
    assert node.observations == 6
    np.testing.assert_allclose(node.size, 0.3)
    np.testing.assert_allclose(node.color, (1.0, 0.0, 0.0))


def test_without_a_view_nothing_counts_as_absent(tmp_path):
    with RobotMemory.open(tmp_path, encoder=WordEncoder()) as memory:
        fill(memory)
        for second in range(10, 30):
            memory.update(SceneObservation(second * SECOND, objects=(minimal("blue bowl", BOWL),)))
        cup = next(node for node in memory.graph().nodes if node.label == "red cup")
    assert cup.state == "unseen" and cup.belief > 0.95


def test_importing_the_room_imports_nothing_heavy():
    code = (
        "import sys, engram.memory; print([m for m in ('torch', 'icechunk', 'networkx', 'scipy') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.strip() == "[]"
