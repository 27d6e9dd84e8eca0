"""The tf buffer against transforms worked out by hand."""

from collections import Counter

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from engram.core.claims import PARTICIPANT, Writer
from engram.core.errors import InvalidInputError, StaleDataError, UnknownNameError
from engram.core.geometry import make_pose, rotation
from engram.core.words import FRAME_MAX
from engram.runtime.transforms import ALIVE_NS, DEEPEST, KEPT, MOST_FRAMES, MOST_POSES, MOVES, TransformBuffer

SECOND = 10**9  # ns
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


def test_a_picture_that_was_looked_at_for_seconds_is_placed_on_a_base_that_tells_where_it_is_fifty_times_a_second():
    buffer = TransformBuffer()
    for number in range(500):
        moving(buffer, number * SECOND // 50, number / 50, parent="map", child="base_link")
    assert buffer.lookup("map", "base_link", SECOND // 2).position[0] == pytest.approx(0.5)


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


STEP = 10**8


def still(buffer, x, child="tool", parent="base_link"):
    buffer.add_static(child, make_pose(np.array([x, 0.0, 0.0]), STILL, parent))


def x_at(buffer, stamp_ns):
    return float(buffer.lookup("base_link", "tool", stamp_ns).position[0])


class Notes:
    def __init__(self):
        self.counts, self.problems = Counter(), {}

    def count(self, name, amount=1):
        self.counts[name] += amount

    def problem(self, key, text):
        self.problems[key] = text


@pytest.mark.parametrize("count", [1, MOVES - 1])
def test_a_few_moving_poses_stop_no_static_frame(count):
    """The static pose was sent once: nobody would say it again."""
    notes = Notes()
    buffer = TransformBuffer(notes)
    still(buffer, 5.0)
    assert notes.counts == {}
    for number in range(count):
        moving(buffer, number, 1.0)
    for stamp_ns in (0, count, STEP, 10 * SECOND):
        assert x_at(buffer, stamp_ns) == 5.0
    assert notes.counts["tf of static frames"] == count
    assert "tf frame 'tool' is said to be static and to move" in notes.problems["static tf"]


def test_a_frame_that_was_static_moves_for_as_long_as_it_is_said_to_and_rests_then():
    """Its publisher was started with another configuration, and ends."""
    buffer = TransformBuffer()
    still(buffer, 5.0)
    for number in range(MOVES):
        moving(buffer, SECOND + number * STEP, float(number))
    last_ns = SECOND + (MOVES - 1) * STEP
    assert x_at(buffer, SECOND - 1) == 5.0
    assert x_at(buffer, SECOND + STEP // 2) == pytest.approx(0.5)
    for early_ns in (last_ns + 1, last_ns + ALIVE_NS):  # the pose of then is to come, as of every frame that moves
        with pytest.raises(StaleDataError):
            x_at(buffer, early_ns)
    assert x_at(buffer, last_ns + ALIVE_NS + 1) == 5.0


def test_poses_of_a_time_to_come_make_no_frame_move_now():
    buffer = TransformBuffer()
    still(buffer, 5.0)
    for number in range(2 * MOVES):
        moving(buffer, 10**18 + number * STEP, 1.0)
    assert x_at(buffer, SECOND) == 5.0


def test_a_frame_that_moves_goes_on_when_it_is_said_to_be_static_and_rests_when_it_ends():
    buffer = TransformBuffer()
    for number in range(2 * MOVES):
        moving(buffer, number * STEP, float(number))
        if number == MOVES:
            still(buffer, 5.0)
    last_ns = (2 * MOVES - 1) * STEP
    assert x_at(buffer, last_ns) == 2 * MOVES - 1
    assert x_at(buffer, last_ns + ALIVE_NS + 1) == 5.0


def test_what_was_said_last_of_a_static_frame_holds():
    buffer = TransformBuffer()
    still(buffer, 5.0)
    still(buffer, 6.0)
    assert x_at(buffer, 0) == 6.0


def test_nothing_is_interpolated_between_two_parents():
    buffer = TransformBuffer()
    moving(buffer, 0, 1.0, parent="elsewhere")
    moving(buffer, 100, 1.0)
    moving(buffer, 200, 2.0)
    assert buffer.lookup("base_link", "tool", 150).position[0] == pytest.approx(1.5)
    with pytest.raises(StaleDataError):
        buffer.lookup("base_link", "tool", 50)


CAMERA, STRANGER, SPARE = (bytes([number]) * PARTICIPANT + b"\0\0\1\3" for number in (1, 2, 3))
OWNER = Writer(CAMERA, "/camera")


def say(buffer, x, writer, child="tool"):
    buffer.add_static(child, make_pose(np.array([x, 0.0, 0.0]), STILL), writer)


def test_names_that_somebody_makes_up_take_no_more_than_their_room_and_no_frame_of_another_away():
    """Neither one that was asked for, nor one that was said once and not asked for yet; a newcomer is heard, too."""
    notes = Notes()
    buffer = TransformBuffer(notes)
    say(buffer, 1.0, CAMERA)
    buffer.add("moving", 0, make_pose(np.zeros(3), STILL), CAMERA)
    for number in range(2 * MOST_FRAMES):
        say(buffer, 9.0, STRANGER, child=f"made up {number}")
    say(buffer, 2.0, SPARE, child="late")
    assert x_at(buffer, 0) == 1.0
    assert [buffer.lookup("base_link", name, 0).position[0] for name in ("late", "moving")] == [2.0, 0.0]
    assert notes.counts["tf frames forgotten"] == MOST_FRAMES + 3
    assert "more than 1024: 'made up 1026' was forgotten" in notes.problems["tf frames"]
    with pytest.raises(UnknownNameError):
        buffer.lookup("base_link", "made up 1026", 0)


def flood(buffer, name, writer):
    for stamp_ns in range(KEPT):
        buffer.add(name, stamp_ns, make_pose(np.zeros(3), STILL), writer)


def test_poses_that_somebody_makes_up_take_no_more_than_their_room_and_none_of_another_away():
    notes = Notes()
    buffer = TransformBuffer(notes)
    say(buffer, 1.0, CAMERA)
    flood(buffer, "tool", STRANGER)  # a static frame that is said to move
    flood(buffer, "base", CAMERA)
    for number in range(2 * MOST_POSES // KEPT):
        flood(buffer, f"made up {number}", STRANGER)
        assert sum(map(len, buffer._moving.values())) <= MOST_POSES
    assert buffer.lookup("base_link", "base", 0).frame == "base_link"
    assert x_at(buffer, 10 * SECOND) == 1.0
    assert notes.problems["tf frames"].startswith("more than 65536 poses: 'made up ")


def test_what_was_asked_for_goes_last_however_many_processes_make_up_frames():
    notes = Notes()
    buffer = TransformBuffer(notes)
    say(buffer, 1.0, CAMERA, child="camera")
    flood(buffer, "base", CAMERA)
    for name in ("camera", "base"):
        buffer.lookup("base_link", name, 0)
    for number in range(2 * MOST_FRAMES):
        stranger = number.to_bytes(PARTICIPANT, "big")
        flood(buffer, f"made up {number}", stranger) if number < 200 else say(buffer, 9.0, stranger, f"{number}")
    assert buffer.lookup("base_link", "camera", 0).position[0] == 1.0
    assert buffer.lookup("base_link", "base", 0).frame == "base_link"
    assert notes.counts["tf frames forgotten"] > MOST_FRAMES


def test_of_one_publisher_that_names_too_many_those_go_that_nobody_asked_for():
    buffer = TransformBuffer()
    still(buffer, 5.0)
    assert x_at(buffer, 0) == 5.0
    for number in range(2 * MOST_FRAMES):
        still(buffer, 9.0, child=f"frame {number}")
    assert x_at(buffer, 0) == 5.0


def test_another_process_moves_no_static_frame_while_its_owner_is_there_and_is_named():
    notes = Notes()
    buffer = TransformBuffer(notes)
    say(buffer, 5.0, CAMERA)
    say(buffer, 6.0, STRANGER)
    for _ in range(2):
        assert x_at(buffer, 0) == 5.0
        buffer.settle(lambda: [Writer(STRANGER, "/bag"), OWNER])
    told = notes.problems.pop("writer of tf_static")
    assert told.startswith("tf frame 'tool': /bag says another pose than /camera, which this node heard first")
    say(buffer, 7.0, CAMERA)  # a new calibration of its owner
    assert x_at(buffer, 0) == 7.0
    buffer.settle(lambda: [OWNER])  # the stranger is gone, and what it said with it
    buffer.settle(lambda: [])
    assert x_at(buffer, 0) == 7.0 and not notes.problems


def test_a_static_frame_goes_to_who_said_another_pose_once_its_owner_is_gone():
    """A driver that was killed and started again says its poses once, before DDS has missed the one that was killed."""
    notes = Notes()
    buffer = TransformBuffer(notes)
    say(buffer, 5.0, CAMERA)
    say(buffer, 6.0, SPARE)
    say(buffer, 7.0, STRANGER)
    there = [Writer(STRANGER, "/bag"), Writer(SPARE, "/camera")]
    buffer.settle(lambda: [*there, OWNER])
    assert x_at(buffer, 0) == 5.0
    buffer.settle(lambda: there)
    assert x_at(buffer, 0) == 6.0
    say(buffer, 8.0, SPARE)
    assert x_at(buffer, 0) == 8.0


def test_two_that_publish_one_description_are_no_rivals_and_nobody_is_asked_who_is_there():
    notes = Notes()
    buffer = TransformBuffer(notes)
    say(buffer, 5.0, CAMERA)
    buffer.settle(lambda: pytest.fail("nothing is to be decided"))
    say(buffer, 5.0 + 1e-9, SPARE)
    twin = Writer(SPARE, "/robot_state_publisher")
    buffer.settle(lambda: [OWNER, twin])
    assert not notes.problems
    say(buffer, 9.0, STRANGER)  # first in the line, and no heir
    buffer.settle(lambda: [Writer(STRANGER, "/bag"), twin])
    assert x_at(buffer, 0) == 5.0 + 1e-9
    assert "/bag says another pose than /robot_state_publisher" in notes.problems["writer of tf_static"]


def test_a_name_that_is_too_long_is_refused_and_a_chain_that_is_too_deep_is_not_followed():
    buffer = TransformBuffer()
    long = "x" * (FRAME_MAX + 1)
    for names in ({"child": long}, {"parent": long}):
        for add in (lambda names: still(buffer, 1.0, **names), lambda names: moving(buffer, 0, 1.0, **names)):
            with pytest.raises(InvalidInputError, match="frame: 257 characters, expected at most 256"):
                add(names)
    for number in range(DEEPEST):
        still(buffer, 1.0, child=f"{number}", parent=f"{number + 1}" if number < DEEPEST - 1 else "base_link")
    assert buffer.lookup("base_link", "0", 0).position[0] == DEEPEST
    still(buffer, 1.0, child="one more", parent="0")
    with pytest.raises(InvalidInputError, match="tf: one more is more than 64 frames from base_link"):
        buffer.lookup("base_link", "one more", 0)


def test_a_camera_may_hang_on_another_frame_of_the_base():
    buffer = TransformBuffer()
    buffer.add_static("camera", make_pose(np.array([0.1, 0.0, 0.3]), QUARTER, "base_footprint"))
    buffer.add_static("base_link", make_pose(np.array([0.0, 0.0, 0.2]), QUARTER * QUARTER, "base_footprint"))
    found = buffer.lookup("base_link", "camera", 5)
    assert found.frame == "base_link" and np.allclose(found.position, (-0.1, 0.0, 0.1))
    assert np.isclose(rotation(found).as_euler("xyz", degrees=True)[2], -90.0)
    assert np.allclose(buffer.lookup("base_link", "base_footprint", 5).position, (0.0, 0.0, -0.2))
    with pytest.raises(UnknownNameError, match="unknown tf frame 'base_footprint'"):
        buffer.lookup("map", "camera", 5)
    with pytest.raises(UnknownNameError, match="unknown tf frame 'elsewhere'"):
        buffer.lookup("base_link", "elsewhere", 5)
