"""Parts of one instant become an observation, in any order; a robot's cameras may keep their own time."""

import numpy as np
import pytest

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
