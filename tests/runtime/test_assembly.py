"""Parts of one instant become an observation, in any order; a robot's cameras may keep their own time."""

import numpy as np
import pytest

from engram.core.errors import InvalidInputError
from engram.core.types import Pose
from engram.runtime.assembly import CameraInbox, ObservationInbox
from engram.runtime.transforms import TransformBuffer
from tests.core.gantry import joints

POSE = Pose(np.array([0.1, 0.2, 0.3]), np.array([1.0, 0, 0, 0]))


@pytest.fixture
def transforms():
    buffer = TransformBuffer()
    for camera in ("front", "wrist"):
        buffer.add_static(f"{camera}_optical_frame", POSE)
    return buffer


def color(value=1):
    return np.full((2, 2, 3), value, np.uint8)


def test_a_frame_is_complete_when_its_last_part_comes_whatever_the_order(transforms):
    inbox = CameraInbox("front", transforms, depth=True)
    inbox.add_depth(5, np.ones((2, 2), np.float32))
    assert inbox.frame(5) is None
    assert inbox.missing(5) == ["camera 'front' color", "camera 'front' camera_info"]
    inbox.set_intrinsics(np.eye(3))
    inbox.add_color(5, color())
    frame = inbox.frame(5)
    assert (frame.stamp_ns, frame.depth.shape) == (5, (2, 2))
    np.testing.assert_array_equal(frame.pose.position, POSE.position)


def test_a_camera_without_tf_says_so():
    inbox = CameraInbox("front", TransformBuffer(), depth=False)
    inbox.set_intrinsics(np.eye(3))
    inbox.add_color(5, color())
    assert inbox.frame(5) is None
    assert "unknown tf frame 'front_optical_frame'" in inbox.missing(5)[0]


def test_stamps_must_be_equal_in_simulation(transforms):
    cameras = [CameraInbox(name, transforms, depth=False) for name in ("front", "wrist")]
    inbox = ObservationInbox(cameras)
    for camera in cameras:
        camera.set_intrinsics(np.eye(3))
    inbox.add_joints(joints(stamp_ns=5))
    cameras[0].add_color(5, color())
    cameras[1].add_color(4, color())
    assert inbox.take() == []
    assert inbox.missing() == ["camera 'wrist' color"]
    cameras[1].add_color(5, color())
    (observation,) = inbox.take()
    assert set(observation.cameras) == {"front", "wrist"}
    assert inbox.take() == []


def test_a_robots_cameras_give_their_newest_frame_within_the_tolerance(transforms):
    camera = CameraInbox("front", transforms, depth=False)
    inbox = ObservationInbox([camera], tolerance_s=0.05)
    camera.set_intrinsics(np.eye(3))
    camera.add_color(0, color(1))
    camera.add_color(20_000_000, color(2))
    inbox.add_joints(joints(stamp_ns=50_000_000))
    (observation,) = inbox.take()
    assert observation.camera("front").color.max() == 2
    inbox.add_joints(joints(stamp_ns=80_000_000))  # 60 ms after the picture: too old
    assert inbox.take() == []


def test_when_the_simulation_begins_anew_old_pictures_go(transforms):
    inbox = CameraInbox("front", transforms, depth=False)
    for stamp in range(10):
        inbox.add_color(10**11 + stamp, color())
    inbox.add_color(100, color())
    assert inbox.newest() == 100


def complete(inbox, stamp_ns):
    inbox.add_depth(stamp_ns, np.ones((2, 2), np.float32))
    inbox.add_color(stamp_ns, color())
    return [frame.stamp_ns for frame in inbox.take()]


@pytest.mark.parametrize("ahead_ns", [5 * 10**8, 10**18])
def test_depth_images_from_the_future_do_not_stop_the_frames_that_come_after_them(transforms, ahead_ns):
    inbox = CameraInbox("front", transforms, depth=True)
    inbox.set_intrinsics(np.eye(3))
    assert complete(inbox, 10**8) == [10**8]
    for number in range(16):
        inbox.add_depth(2 * 10**8 + ahead_ns + number, np.ones((2, 2), np.float32))
    assert [complete(inbox, step * 10**8) for step in (2, 3, 4)] == [[2 * 10**8], [3 * 10**8], [4 * 10**8]]


def test_a_frame_from_the_future_is_seen_once_and_those_that_come_after_it_too(transforms):
    inbox = CameraInbox("front", transforms, depth=True)
    inbox.set_intrinsics(np.eye(3))
    assert complete(inbox, 9 * 10**8) == [9 * 10**8]
    assert [complete(inbox, step * 10**8) for step in (1, 2)] == [[10**8], [2 * 10**8]]


def test_parts_that_do_not_fit_are_told_once_and_the_next_frame_is_seen(transforms):
    inbox = CameraInbox("front", transforms, depth=True)
    inbox.set_intrinsics(np.eye(3))
    inbox.add_color(9 * 10**8, color())
    inbox.add_depth(9 * 10**8, np.ones((3, 3), np.float32))
    with pytest.raises(InvalidInputError):
        inbox.take()
    assert complete(inbox, 10**8) == [10**8]


def test_an_instant_whose_parts_do_not_fit_is_told_once_and_the_next_is_observed(transforms):
    camera = CameraInbox("front", transforms, depth=True)
    inbox = ObservationInbox([camera])
    camera.set_intrinsics(np.eye(3))
    for stamp_ns, size in ((1, 3), (2, 2)):
        inbox.add_joints(joints(stamp_ns=stamp_ns))
        camera.add_color(stamp_ns, color())
        camera.add_depth(stamp_ns, np.ones((size, size), np.float32))
    with pytest.raises(InvalidInputError):
        inbox.take()
    assert [observation.stamp_ns for observation in inbox.take()] == [2]


def test_a_cycle_in_tf_is_what_a_camera_lacks(transforms):
    inbox = CameraInbox("front", transforms, depth=False)
    inbox.set_intrinsics(np.eye(3))
    transforms.add_static("front_optical_frame", Pose(POSE.position, POSE.quaternion, "mount"))
    transforms.add_static("mount", Pose(POSE.position, POSE.quaternion, "front_optical_frame"))
    inbox.add_color(5, color())
    assert inbox.take() == [] and "is a cycle" in inbox.missing(5)[0]
    transforms.add_static("mount", POSE)
    assert [frame.stamp_ns for frame in inbox.take()] == [5]
