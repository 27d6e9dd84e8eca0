"""The tf buffer against transforms worked out by hand."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from engram.core.errors import InvalidInputError, StaleDataError, UnknownNameError
from engram.core.geometry import make_pose, rotation
from engram.runtime.transforms import MOST_FRAMES, TransformBuffer

QUARTER = Rotation.from_euler("z", 90, degrees=True)


STILL = Rotation.identity()


def moving(buffer, stamp_ns, x, turn=STILL, parent="base_link", child="tool"):
    pose = make_pose(np.array([x, 0.0, 0.0]), turn, parent)
    buffer.add(child, stamp_ns, pose)


def test_an_exact_stamp_comes_back_bit_for_bit():
    buffer = TransformBuffer()
    pose = make_pose(np.array([0.1, 0.2, 0.3]), Rotation.from_euler("xyz", [0.3, 0.2, 0.1]))
    buffer.add("tool", 100, pose)
    found = buffer.lookup("base_link", "tool", 100)
    assert found.position.tobytes() == pose.position.tobytes()
    assert found.quaternion.tobytes() == pose.quaternion.tobytes()


def test_between_two_stamps_it_is_interpolated():
    buffer = TransformBuffer()
    moving(buffer, 0, 0.0)
    moving(buffer, 100, 1.0, QUARTER)
    found = buffer.lookup("base_link", "tool", 25)
    assert found.position[0] == pytest.approx(0.25)
    assert rotation(found).magnitude() == pytest.approx(np.pi / 8)


def test_a_chain_is_multiplied_in_the_right_order():
    buffer = TransformBuffer()
    moving(buffer, 10, 1.0, QUARTER)
    camera = make_pose(np.array([1.0, 0.0, 0.0]), Rotation.identity(), "tool")
    buffer.add_static("camera", camera)
    found = buffer.lookup("base_link", "camera", 10)
    np.testing.assert_allclose(found.position, [1.0, 1.0, 0.0], atol=1e-12)  # the tool's x points along base y
    assert found.frame == "base_link"


def test_late_transforms_are_sorted_in():
    buffer = TransformBuffer()
    moving(buffer, 0, 0.0)
    moving(buffer, 100, 1.0)
    moving(buffer, 50, 0.9)
    assert buffer.lookup("base_link", "tool", 50).position[0] == pytest.approx(0.9)


def test_what_is_not_known_is_named():
    buffer = TransformBuffer()
    moving(buffer, 100, 1.0)
    with pytest.raises(UnknownNameError, match="unknown tf frame 'tol'; did you mean 'tool'"):
        buffer.lookup("base_link", "tol", 100)
    with pytest.raises(StaleDataError, match="tf frame 'tool' at 101 ns: known from 100 to 100"):
        buffer.lookup("base_link", "tool", 101)


def test_when_time_begins_anew_the_old_is_forgotten():
    buffer = TransformBuffer()
    for stamp in range(100):
        moving(buffer, 10**10 + stamp, 1.0)
    moving(buffer, 5, 2.0)
    assert buffer.lookup("base_link", "tool", 5).position[0] == pytest.approx(2.0)
    with pytest.raises(StaleDataError):
        buffer.lookup("base_link", "tool", 10**10)


@pytest.mark.parametrize("static", [True, False])
def test_a_cycle_is_named_and_the_next_right_message_undoes_it(static):
    buffer = TransformBuffer()

    def tell(child, parent):
        pose = make_pose(np.array([1.0, 0.0, 0.0]), STILL, parent)
        if static:
            buffer.add_static(child, pose)
        else:
            buffer.add(child, 100, pose)

    tell("camera", "tool")
    tell("tool", "camera")
    with pytest.raises(InvalidInputError, match="tf: camera in tool in camera is a cycle"):
        buffer.lookup("base_link", "camera", 100)
    tell("tool", "base_link")
    assert buffer.lookup("base_link", "camera", 100).position[0] == pytest.approx(2.0)


def test_what_was_said_last_of_a_frame_holds_whether_it_moves_or_not():
    buffer = TransformBuffer()
    moving(buffer, 100, 1.0)
    buffer.add_static("tool", make_pose(np.array([5.0, 0.0, 0.0]), STILL))
    assert buffer.lookup("base_link", "tool", 100).position[0] == 5.0
    moving(buffer, 200, 1.0)
    assert buffer.lookup("base_link", "tool", 200).position[0] == 1.0


def test_nothing_is_interpolated_between_two_parents():
    buffer = TransformBuffer()
    moving(buffer, 0, 1.0, parent="elsewhere")
    moving(buffer, 100, 1.0)
    moving(buffer, 200, 2.0)
    assert buffer.lookup("base_link", "tool", 150).position[0] == pytest.approx(1.5)
    with pytest.raises(StaleDataError):
        buffer.lookup("base_link", "tool", 50)


def test_names_that_somebody_makes_up_take_no_more_than_their_room_and_no_known_frame_away():
    buffer = TransformBuffer()
    moving(buffer, 0, 0.5)
    for number in range(MOST_FRAMES - 1):
        buffer.add_static(f"made up {number}", make_pose(np.zeros(3), STILL, "base_link"))
    for add in (lambda: moving(buffer, 0, 0.0, child="one more"), lambda: buffer.add_static("one more", None)):
        with pytest.raises(InvalidInputError, match="tf frame 'one more': the 1025th, it is left out"):
            add()
    moving(buffer, 100, 0.6)
    assert buffer.lookup("base_link", "tool", 100).position[0] == 0.6
